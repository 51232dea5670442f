"""Experiments: grids of runs on one engine, and what their results show.

Files in reading order:

    engine.py        cells, claims, resuming and failures of any grid of runs
    spread.py        the cells of a grid on the workers of a dask scheduler
    grids.py         grids of settings: the paper's, or one's own
    sweep.py         the paper's search over settings of fine-tuning
    suite.py         every fine-tuning task of the paper
    recipe.py        a study as its TOML file describes it
    cells.py         the runs of a study, named by what determines their outcome
    rows.py          the rows of a study, and their cells
    plan.py          from a study's file to its rows
    minute.py        the tiny sizes of --minute
    choices.py       settings of fine-tuning that are chosen on training rows
    baselines.py     baselines without an encoder
    study.py         running a study, and the estimate of --dry-run
    claims.py        what a comparison of two rows shows, and the one that a study names before it is run
    report.py        results.json of a study
    study_tables.py  the tables of a study
    figures.py       the picture of a study
    outcomes.py      a finished run: its results and predictions, as compare.py reads them
    compare.py       two runs on the same development rows: differences with intervals
    statistics.py    metrics of many resamples at once, for the paired bootstrap
    submission.py    predictions for GLUE's leaderboard
"""

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .compare import compare_runs as compare_runs
    from .plan import make_plan as make_plan
    from .rows import StudyInputs as StudyInputs
    from .study import Options as Options
    from .study import run_study as run_study
    from .submission import submit as submit
    from .suite import run_suite as run_suite
    from .sweep import run_sweep as run_sweep

__all__, __getattr__, __dir__ = lazy_names(__name__)

"""Experiments: grids of runs on one engine, and what their results show.

Files in reading order:

    engine.py        cells, claims, resuming and failures of any grid of runs
    sweep.py         the paper's search over settings of fine-tuning
    suite.py         every fine-tuning task of the paper
    recipe.py        a study as its TOML file describes it
    cells.py         the runs of a study, named by what determines their outcome
    plan.py          from a study to its rows and cells
    study.py         running a study, and the estimate of --dry-run
    claims.py        what a comparison of two rows shows, and the one that a study names before it is run
    report.py        results.json of a study
    study_tables.py  the tables of a study
    figures.py       the picture of a study
    compare.py       two runs on the same development rows: differences with intervals
    statistics.py    metrics of many resamples at once, for the paired bootstrap
    submission.py    predictions for GLUE's leaderboard
"""

from .compare import compare_runs
from .plan import StudyInputs, make_plan
from .study import Options, run_study
from .submission import submit
from .suite import run_suite
from .sweep import run_sweep

__all__ = ["Options", "StudyInputs", "compare_runs", "make_plan", "run_study", "run_suite", "run_sweep", "submit"]

"""Experiments: grids of runs on one engine, and what their results show.

Files in reading order:

    engine.py        cells, claims, resuming and failures of any folder of runs
    spread.py        the cells on the workers of a dask scheduler
    recipe.py        a study as its TOML file describes it
    search.py        sweeps; the best setting and the best model of a search
    cells.py         the runs of a study, named by what determines their outcome
    rows.py          the rows of a study, and their cells
    plan.py          from a study's file to its rows
    minute.py        the tiny sizes of --minute
    choices.py       combinations of settings, and settings that are chosen on training rows
    baselines.py     baselines without an encoder
    study.py         running a study
    statistics.py    paired differences over seeds; metrics of many resamples, for the bootstrap
    claims.py        the comparison that a study names before it is run
    results.py       results.json of a study
    tables.py        the tables of a study
    figures.py       the picture of a study
    compare.py       two runs on the same development rows: differences with intervals
"""

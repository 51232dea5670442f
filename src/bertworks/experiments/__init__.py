"""Experiments: studies, each of many runs, and their results.

Files in reading order:

    scheduler.py     runs of a folder: claimed, computed, resumed, and their failures recorded
    dask_runner.py   the runs on the workers of a dask scheduler
    recipe.py        a study as its TOML file describes it
    specs.py         the specification of each run, whose hash names the run's folder; rows, which are made of runs
    plan.py          from a study's file to its rows; the tiny sizes of --minute
    choices.py       combinations of settings, and settings that are chosen on training examples
    search.py        sweeps; the best setting and the best model of a search
    baselines.py     baselines without an encoder
    study.py         running a study
    statistics.py    paired differences over seeds; metrics of many resamples, for the bootstrap
    claims.py        the pre-registered comparison of a study
    results.py       results.json of a study
    tables.py        the tables of a study
    figures.py       the figure of a study
    compare.py       two runs on the same development examples: differences with intervals
"""

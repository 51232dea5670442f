"""What runs report: their files, logs, progress, tables and pictures. This package does not depend on models or data.

run_files.py   results.json, log.jsonl and other files of runs, checked when read; the commit of the code
log.py         the log of a run, written and shown
progress.py    progress of long jobs
results.py     what a call in Python returns: results that print as tables
tables.py      tables of results, on a terminal or as Markdown
outputs.py     whether a file or folder that the user names may be written
figures.py     curves of runs (imports matplotlib)
tracking.py   TensorBoard files of a run
fonts.py       fonts for every script in pictures
"""

"""Carry out a run: checks and set-up, trials, and tables. Also resume an interrupted run."""

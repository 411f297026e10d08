"""A run: checks and set-up, trials, tables; also resuming an interrupted run."""

"""Check a run's raw files, turn them into tables, and judge what limited each trial."""

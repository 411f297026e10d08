"""A run from what stands before its first trial to its tables, after an interruption too."""

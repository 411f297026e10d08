"""Compute intervals, tests, ranks and bands with pure functions of numbers."""

"""Compute confidence intervals, tests and rankings, with functions that depend only on numbers."""

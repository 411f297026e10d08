"""The published comparisons beside a run: their numbers, ours, and whether each claim holds."""

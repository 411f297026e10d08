"""Published comparisons next to a run: their numbers, ours, and the outcome of each claim."""

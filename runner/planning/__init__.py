"""Plan a run: TOML files to typed values, trials in order, and the next rate of a search."""

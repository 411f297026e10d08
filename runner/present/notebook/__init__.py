"""Functions that notebooks call, and functions that execute notebooks and turn them into pages."""

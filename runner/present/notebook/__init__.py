"""Functions that notebooks call, and the execution of notebooks into pages."""

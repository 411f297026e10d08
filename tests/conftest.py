"""Fixtures and rules that more than one module of tests takes."""

pytest_plugins = ["disturbance", "published_runs", "pytester"]

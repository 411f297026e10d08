"""Fixtures that more than one module of tests takes."""

pytest_plugins = ["published_runs"]

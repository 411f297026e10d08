"""Figures of a run: from tables to charts."""

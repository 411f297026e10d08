"""Decide whether two cells can be compared, and compute the result; used by all pages."""

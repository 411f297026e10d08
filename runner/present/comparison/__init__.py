"""Decide if two cells can be compared, and compute the result of the comparison, for all pages."""

"""Compare two commits of one server: decide which is better, and say it in words."""

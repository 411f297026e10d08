"""Compare two commits of one server: decide which commit is better, and report the decision."""

"""Hold anybody's table of benchmark results against laws that need no new measurement."""

"""Statistics as pure functions that turn numbers into intervals, tests, ranks and bands."""

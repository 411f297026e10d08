"""Statistics as pure functions: numbers to intervals, tests, ranks and bands."""

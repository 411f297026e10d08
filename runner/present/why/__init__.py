"""Why servers differ: on which functions and system calls they spend a request's CPU time."""

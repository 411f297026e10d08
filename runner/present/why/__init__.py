"""Why servers differ: the functions and system calls on which a request's CPU time is spent."""

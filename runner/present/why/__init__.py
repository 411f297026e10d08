"""Show why servers differ: on which functions and system calls they spend CPU time per request."""

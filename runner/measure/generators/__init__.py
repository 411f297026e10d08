"""The load generators: a file for each, and what they have in common."""

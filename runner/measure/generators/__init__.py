"""The load generators: one module each, and their common interface."""

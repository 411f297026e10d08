"""The load generators: one module for each, and the types that all of them share."""

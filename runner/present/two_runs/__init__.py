"""Compare two runs cell by cell, and follow cells over many runs."""

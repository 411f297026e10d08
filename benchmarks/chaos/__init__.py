"""Hit campaigns with random faults, to see whether they lose data or leave anything behind."""

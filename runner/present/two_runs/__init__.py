"""Runs beside each other: two of them cell by cell, and many in the order of time."""

"""Readers of other people's tables, and of what load generators print."""

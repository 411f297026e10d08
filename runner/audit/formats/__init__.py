"""Read other people's tables, and the reports that load generators print."""

"""Turn raw files into reconciled, typed tables and a verdict."""

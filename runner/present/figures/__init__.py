"""Make the charts of a run's figures from the run's tables."""

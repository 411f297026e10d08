"""The figures of a run. Their functions make charts from a run's tables."""

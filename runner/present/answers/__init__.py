"""A run's results in words: summary, ranking with its certainty, warnings, and evidence."""

"""Put a run's results into words: summary, rankings with their certainty, warnings, evidence."""

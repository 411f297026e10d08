"""Put the results of a run into words: summary, findings, rankings, warnings and evidence."""

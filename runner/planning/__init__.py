"""Plan a run: read its TOML files, put its trials in order, and find a search's next rate."""

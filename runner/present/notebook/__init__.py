"""Execute notebooks and turn them into pages, and provide the functions that notebooks call."""

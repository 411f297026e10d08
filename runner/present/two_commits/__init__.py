"""Two commits of one server: what is decided about them, and in which words."""

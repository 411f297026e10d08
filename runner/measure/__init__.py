"""Start, verify, load and sample servers; the outcome is raw files."""

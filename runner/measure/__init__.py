"""Start, check, load and sample servers, and write raw files."""

"""A benchmark lab for web API servers: measure -> digest -> present."""

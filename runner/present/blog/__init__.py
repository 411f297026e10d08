"""A run as a folder for a blog: post, page, figures, tables, provenance."""

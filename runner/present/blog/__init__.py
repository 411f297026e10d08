"""Export of a run as a folder for a blog: post, page, figures, tables, provenance."""

"""Export a run as a folder for a blog, with post, page, figures, tables and provenance."""

"""Style, colours, themes, captions, markup and page layout, shared by all pages and figures."""

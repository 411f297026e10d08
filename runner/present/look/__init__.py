"""Define what all pages and figures share: style, colours, captions, markup and page layout."""

"""How everything looks and is worded: style, colours, themes, scales, captions, markup, the page around it."""

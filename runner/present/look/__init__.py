"""How everything looks and is worded: style, colours, themes, captions, markup, the page around
it.
"""

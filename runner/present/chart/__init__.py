"""A figure is a `Chart`: a frozen value with a tidy frame.

`drawing` draws the chart. `sentences` describes it in words and turns it into a table.
"""

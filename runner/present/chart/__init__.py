"""Represent each figure as a `Chart`, a frozen value with a tidy frame.

`drawing` draws a chart. `sentences` describes a chart in words and turns it into a table.
"""

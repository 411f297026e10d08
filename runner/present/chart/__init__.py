"""Represent each figure as a `Chart`, which is a frozen value that contains a tidy frame.

The module `drawing` draws a chart. The module `sentences` describes a chart in words, and turns it
into a table.
"""

"""Represent each figure as a `Chart`, an immutable object with a row of data for each point.

The module `drawing` draws a chart. The module `sentences` describes a chart in words, and turns it
into a table.
"""

"""A figure is a `Chart`, a frozen value with a tidy frame.

`drawing` draws it, `sentences` describes it, and prints it as a table.
"""

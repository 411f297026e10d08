"""What is to be run: TOML files as typed values, trials in order, the rate of a search's next
step.
"""

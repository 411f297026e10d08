"""Compare published numbers and claims with the numbers of a run, and judge each claim."""

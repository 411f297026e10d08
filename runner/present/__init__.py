"""Turn tables into statistics, figures and executed notebooks."""

"""The figures of a run: tables to a matplotlib `Figure`, and the numbers that it draws."""

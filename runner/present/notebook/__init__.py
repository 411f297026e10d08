"""What the notebooks call, and how they are executed and become pages."""

"""What figures say that are not charts yet."""

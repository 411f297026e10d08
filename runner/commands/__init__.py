"""The commands of `bench`: each calls a wing and prints the result."""

"""The commands of `bench`. Each command calls another part of the lab and prints the result."""

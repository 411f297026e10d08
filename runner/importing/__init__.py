"""Import files of other people's load tests as runs of the lab."""

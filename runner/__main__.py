"""Let `python -m runner` do the same as `bench`."""

from runner.cli import main

main()

"""`python -m threefold` is the `threefold` command."""

from threefold.cli import main

main()

"""The command line. Loads the rest of threefold only when a command needs it, so that help is quick."""

from threefold.cli.app import main

__all__ = ["main"]

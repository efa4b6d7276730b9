"""The command line. Loads the rest of threefold only when a command needs it, so that help is quick."""

import os

# Threads that spin while they wait make a busy machine crawl: a short run beside others took 38 s instead of 8.
# It must be said before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from threefold.cli.app import main

__all__ = ["main"]

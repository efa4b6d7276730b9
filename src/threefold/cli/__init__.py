"""The command line. Loads the rest of threefold only when a command needs it, so that help is quick."""

import os

from threefold.cli import stopping

# Threads that spin while they wait make a busy machine crawl: a short run beside others took 38 s instead of 8. A short
# spin keeps a quiet machine quick. It must be said before torch is loaded; what the user has set stays.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")


def main() -> None:
    """Entry point of the `threefold` command. Signals come first: everything else takes a while to load."""
    stopping.install()
    from threefold.cli.app import main

    main()

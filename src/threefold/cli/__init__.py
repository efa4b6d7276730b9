"""The command line. It imports the rest of threefold only when a command needs it, so that help is fast."""

import os

from threefold.cli import stopping

# Threads that spin while waiting slow down a busy machine: a short run next to others took 38 s instead of 8. A short
# spin keeps an idle machine fast. It must be set before torch is loaded; a value set by the user is kept.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")


def main() -> None:
    """Entry point of the `threefold` command. Signal handlers are installed first, as other imports take a while."""
    stopping.install()
    from threefold.cli.app import main

    main()

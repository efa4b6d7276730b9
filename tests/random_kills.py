"""Disturb commands that share a store for a long time: python tests/random_kills.py --minutes 30

Commands are killed, stopped and interrupted at random; what is stored must be what it is when nothing happens.
A short one is in `make test`.
"""

import argparse
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of an earlier time, to repeat it")
    given = parser.parse_args()
    sys.path.insert(0, str(HERE / "cli"))
    from disturbed_commands import disturb
    from experiment_lab import server

    print(f"seed {given.seed}", flush=True)
    with server(), TemporaryDirectory(prefix="random_kills.") as folder:
        print(disturb(Path(folder), 60 * given.minutes, given.seed))


if __name__ == "__main__":
    main()

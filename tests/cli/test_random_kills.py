"""Commands disturbed at random, for a short time. For a long time: python tests/random_kills.py --minutes 30"""

import random
from pathlib import Path

from disturbed_commands import disturb
from experiment_lab import server

SECONDS = 30.0


def test_killed_stopped_and_interrupted_at_random_the_end_is_the_same(tmp_path: Path) -> None:
    with server():
        disturb(tmp_path, SECONDS, random.SystemRandom().randrange(1 << 32))

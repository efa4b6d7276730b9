"""Commands disturbed at random, for a short time. For a long time: python tests/random_kills.py --minutes 30"""

import random
from pathlib import Path

import pytest
from disturbed_commands import disturb
from experiment_lab import server

SECONDS, IN_FULL = 5.0, 30.0  # the round that has begun is finished


def test_killed_stopped_and_interrupted_at_random_the_end_is_the_same(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    with server():
        seconds = IN_FULL if pytestconfig.getoption("--full") else SECONDS
        disturb(tmp_path, seconds, random.SystemRandom().randrange(1 << 32))

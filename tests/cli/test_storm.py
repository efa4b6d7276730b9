"""A short storm, another one each time. A long one: python tests/storm.py --minutes 30"""

import random
from pathlib import Path

from experiment_lab import server
from storm_lab import storm

SECONDS = 30.0


def test_a_storm_leaves_what_calm_weather_leaves(tmp_path: Path) -> None:
    with server():
        storm(tmp_path, SECONDS, random.SystemRandom().randrange(1 << 32))

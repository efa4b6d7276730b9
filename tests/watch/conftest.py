import sys
from pathlib import Path

for _shared in ("cli", "report"):  # their laboratories serve here too
    sys.path.insert(0, str(Path(__file__).parents[1] / _shared))

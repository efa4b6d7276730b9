"""Memory that a step frees stays with the process."""

import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = """
import resource, sys
import torch
from threefold.engine.malloc import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
torch.zeros(25_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.zeros(25_000_000)  # 100 MB
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    told = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    return int(told.stdout)


@pytest.mark.skipif(sys.platform != "linux" or not Path("/lib64/ld-linux-x86-64.so.2").exists(), reason="needs glibc")
def test_pages_are_not_fetched_again():
    assert faults("kept") < faults("as usual") / 3  # all but the first few

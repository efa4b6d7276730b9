"""Memory that a step frees is not returned to the system."""

import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = """
import resource
import torch
from threefold.engine.malloc import keep_freed_memory

def faults():
    torch.zeros(25_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.zeros(25_000_000)  # 100 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

as_usual = faults()
keep_freed_memory()
print(faults(), as_usual)
"""

GROWTH = """
import resource, sys
import torch
from threefold import Dataset, Method, Permuted, SCENARIOS
from threefold.engine import Adam, Replicas, Training
from threefold.engine.evaluate import accuracies
from threefold.engine.sharing import Stacks
from threefold.networks import MLPNetwork
x, y = torch.rand(400, 16), torch.arange(400) % 4
stream = Permuted(Dataset.from_arrays(x, y, x, y), 400)
torch.set_grad_enabled(False)
(found,) = Stacks(stream, [Replicas(SCENARIOS["class"], [Method()], [1], [Adam(lr=0.1)])],
                  Training(1, 16, MLPNetwork(width=8))).evaluated
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
accuracies(found.stack, 0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
glibc = pytest.mark.skipif(
    sys.platform != "linux" or not Path("/lib64/ld-linux-x86-64.so.2").exists(), reason="needs glibc"
)


def told_by(program: str) -> list[int]:
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [int(number) for number in told.stdout.split()]


@glibc
def test_pages_are_not_fetched_again():
    kept, as_usual = told_by(FAULTS)
    assert kept < as_usual / 3  # all but the first few


@glibc
def test_memory_does_not_grow_with_every_task_that_is_tested():
    """With small results between freed logits, each task took the memory of its logits anew: 10 GB for 3,000 tasks."""
    (growth,) = told_by(GROWTH)
    assert growth < 40_000  # kilobytes; it was 150,000

"""What rounding depends on, the processor and its instructions: `python tests/learning/processor.py` prints them."""

from pathlib import Path

import torch

LINES = ("vendor_id", "cpu family", "model", "model name")


def processor() -> str:
    """This machine's processor, and which of its instructions torch uses."""
    first = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    told = dict(line.split(":", 1) for line in first.splitlines() if ":" in line)
    found = {name.strip(): value.strip() for name, value in told.items()}
    return ", ".join([*(f"{name} {found.get(name, '?')}" for name in LINES), torch.backends.cpu.get_cpu_capability()])


if __name__ == "__main__":
    print(processor())

"""Names that contain markup and script code."""

import numpy as np

from threefold.data import Dataset
from threefold.experiments import Cell, Section, Settings
from threefold.methods import Method, Part, hyper
from threefold.scenarios import SCENARIOS
from threefold.streams import Split

NAME = """<script>alert(1)</script>"'`&|*_x_$x^2$\\input{/etc/passwd}[red](https://evil.example/a.png)"""
REASON = """<img src=https://evil.example/b.png onerror=alert(2)> | \\write18{rm}"""


def hostile_section(method: str = NAME) -> Section:
    """A table whose data, method, title, reasons and notes are all hostile."""
    from fake_sections import a_result

    class Hostile(Part):
        name = method
        strength: float = hyper("does nothing", 1.0)

    x, y = np.zeros((20, 2, 2), np.float32), np.arange(20) % 10
    cut = Split(Dataset.from_arrays(x, y, x, y, name=NAME))
    cells = [
        Cell.of(cut, SCENARIOS[s], Method(*parts), Settings.checked(device="cpu", iters=3))
        for s in ("task", "class")
        for parts in ((), (Hostile(),))
    ]
    return Section(
        name=f"mine{NAME}",
        title=f"Mine \x1b[31m{NAME}",
        kind="table",
        results=[a_result(cell, 50.0, seeds=3) for cell in cells],
        refused=[(Cell.of(cut, SCENARIOS["domain"], Method(Hostile()), Settings.checked(device="cpu")), REASON)],
        notes={NAME: REASON},
        selected=NAME,
        command=f"threefold experiment {NAME}",
    )

"""The terminal's table, from made-up records."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from rich.console import Console

from threefold.data import Dataset
from threefold.experiments import Cell, Result, Section, Settings
from threefold.methods import Method, Offline, Part, hyper
from threefold.methods.part import Setting
from threefold.report.formatting import plus_minus, title
from threefold.report.tables import result_tables
from threefold.report.terminal import fitting
from threefold.results import Record, run_key, summarize
from threefold.scenarios import SCENARIOS
from threefold.streams import Split


class Shy(Part):
    """A method that refuses Class-IL."""

    name = "shy"
    strength: float = hyper("does nothing", 1.0)

    def refuse(self, setting: Setting) -> str | None:
        return "Shy does not like to compete." if setting.outputs.all_compete else None


@pytest.fixture(scope="module")
def split() -> Split:
    """Split MNIST, as far as tables know."""
    x, y = np.zeros((20, 2, 2), np.float32), np.arange(20) % 10
    return Split(Dataset.from_arrays(x, y, x, y, name="mnist"))


def a_cell(split: Split, scenario: str, *parts: Part, **settings: object) -> Cell:
    return Cell.of(split, SCENARIOS[scenario], Method(*parts), Settings.checked(device="cpu", **settings))


def a_result(cell: Cell, accuracies: Sequence[float]) -> Result:
    """Runs whose average accuracies are these; NaN for one that diverged."""
    records = []
    for seed, accuracy in enumerate(accuracies, start=1):
        spec, diverged = cell.run_spec(seed), math.isnan(accuracy)
        matrix, initial = [[accuracy] * 5] * 5, [10.0] * 5
        records.append(
            Record(
                key=run_key(spec),
                spec=spec,
                status="diverged" if diverged else "finished",
                diverged_at=0 if diverged else None,
                initial=initial,
                matrix=matrix,
                timings={},
                environment={},
            )
        )
    return Result(cell, records)


def drawn(results: Sequence[Result], refused: Sequence[tuple[Cell, str]] = (), width: int = 120) -> list[str]:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), color_system=None)  # noqa: SIM115
    (board,) = result_tables(Section("run", "Run", "table", results, refused))
    console.print(fitting(console, board))
    return [line.rstrip() for line in console.export_text().splitlines()]


def row(lines: list[str], name: str) -> list[str]:
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    (found,) = [cells for first, *cells in rows if first == name]
    return found


def test_ours_stands_beside_the_published(split: Split) -> None:
    results = [
        a_result(a_cell(split, "task"), [87, 89]),
        a_result(a_cell(split, "domain"), [59.5, 60.5]),
        a_result(a_cell(split, "class"), [19.9, 19.9]),
        a_result(a_cell(split, "task", Offline()), [99.66, 99.66]),
    ]
    lines = drawn(results)
    assert lines[0] == "split-mnist: average accuracy over all tasks, per cent (mean ± SEM of 2 seeds)"
    header = [cell.strip() for cell in lines[2].split("┃")[1:-1]]
    assert header == ["Method", "Task-IL", "published", "Domain-IL", "published", "Class-IL", "published"]
    assert row(lines, "None") == [
        *("88.00 ± 1.00 ?", "87.19 ± 0.94"),
        *("60.00 ± 0.50 ?", "59.21 ± 2.04"),
        *("19.90 ± 0.00 ?", "19.90 ± 0.02"),
    ]
    assert row(lines, "Offline") == ["99.66 ± 0.00 ?", "99.66 ± 0.02", *["…", ""] * 2]
    assert lines[-1] == "? too few seeds to tell; … not run."


def test_the_published_number_of_a_shorter_run_is_marked(split: Split) -> None:
    for scenario, how, ours, theirs, mark in (
        ("task", {"iters": 5}, [87, 89], "87.19 ± 0.94", "(full length)"),
        ("class", {"lr": 0.5}, [19, 21], "19.90 ± 0.02", "(paper's settings)"),
    ):
        lines = drawn([a_result(a_cell(split, scenario, **how), ours)])
        assert row(lines, "None") == [f"{sum(ours) / 2:.2f} ± 1.00", theirs]
        (below,) = [line for line in lines if mark in line]
        assert [cell.strip() for cell in below.split("│")[1:-1]] == ["", "", mark]


def test_verdicts_stand_beside_the_numbers(split: Split) -> None:
    results = [
        a_result(a_cell(split, "task"), [87, 88, 86, 87, 87]),
        a_result(a_cell(split, "domain"), [99, 98, 99, 98, 97]),
    ]
    lines = drawn(results)
    assert row(lines, "None") == ["87.00 ± 0.32 ✓", "87.19 ± 0.94", "98.20 ± 0.37 ✗", "59.21 ± 2.04"]
    assert lines[-1] == "✓ agrees with the published number; ✗ differs from the published number."


def test_a_method_refused_everywhere_still_has_its_row(split: Split) -> None:
    lines = drawn([a_result(a_cell(split, "class"), [20.0])], [(a_cell(split, "class", Shy()), "It is shy.")])
    assert row(lines, "None") == ["20.00 ?", "19.90 ± 0.02"]
    assert row(lines, "shy") == ["–", ""]


def test_a_narrow_table_loses_nothing(split: Split) -> None:
    """A terminal is often 80 columns wide: the published number goes below ours, none is cut."""
    scenarios = ("task", "domain", "class")
    results = [a_result(a_cell(split, s), [87.0, 89.0]) for s in scenarios]
    results += [a_result(a_cell(split, s, Offline()), [98.0, 99.0]) for s in scenarios]
    lines = drawn(results, width=80)
    assert "below: published" in " ".join(lines[:3])
    assert not any("…" in line for line in lines)
    place = next(number for number, line in enumerate(lines) if line.startswith("│ None "))
    assert row(lines, "None") == ["88.00 ± 1.00 ?"] * 3
    below = [cell.strip() for cell in lines[place + 1].split("│")[2:-1]]
    assert below == ["87.19 ± 0.94", "59.21 ± 2.04", "19.90 ± 0.02"]
    assert row(lines, "Offline") == ["98.50 ± 0.50 ?"] * 3


@pytest.mark.parametrize(
    ("values", "text"),
    [([50.0], "50.00"), ([49.0, 51.0], "50.00 ± 1.00"), ([1.005, 1.005], "1.00 ± 0.00"), ([math.nan], "diverged")],
)
def test_mean_and_error(values: list[float], text: str) -> None:
    assert plus_minus(summarize(values)) == text


def test_titles() -> None:
    assert title(Method()) == "None"
    assert title(Method(Offline())) == "Offline"
    assert title(Offline() + Shy(strength=0.5)) == "Offline + shy (strength=0.5)"

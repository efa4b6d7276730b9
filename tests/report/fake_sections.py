"""Sections of made-up records: accuracies drawn around the published numbers, with realistic shapes."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from threefold.data import Dataset
from threefold.experiments import Cell, Result, Section, Settings
from threefold.methods import METHODS, Method, parse
from threefold.results import Record, lookup, pack, run_key
from threefold.scenarios import SCENARIOS
from threefold.streams import Permuted, Split, Stream, find_boundaries

PAPER = ["none", "offline", "xdg", "ewc", "online-ewc", "si", "lwf", "dgr", "dgr-distill", "icarl"]
BUDGETS = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000]


@cache
def stream(name: str = "split-mnist", boundaries: str = "sharp") -> Stream:
    """A stream over a few empty images that goes by the name of the real one."""
    kind, _, data = name.partition("-")
    x, y = np.zeros((20, 2, 2), np.float32), np.arange(20) % 10
    made: Stream = {"split": Split, "permuted": Permuted}[kind](Dataset.from_arrays(x, y, x, y, name=data))
    made.boundaries = find_boundaries(boundaries)
    return made


def a_cell(cut: Stream, scenario: str, method: str | Method, where: str | None = None, **settings: object) -> Cell:
    made = parse(method) if isinstance(method, str) else method
    return Cell.of(cut, SCENARIOS[scenario], made, Settings.checked(device="cpu", **settings), where)


def a_result(cell: Cell, mean: float, spread: float = 1.0, seeds: int = 5, diverged: Sequence[int] = ()) -> Result:
    """Runs whose average accuracies scatter around `mean`."""
    rng = np.random.default_rng(sum(map(ord, f"{cell.name}{cell.task_id_in}")))
    tasks = cell.stream.tasks
    records = []
    for seed in range(1, seeds + 1):
        average = float(np.clip(mean + spread * rng.standard_normal(), 0.5, 99.95))
        initial = np.full(tasks, 100 / cell.stream.classes_per_task if not cell.scenario.own_units else 10.0)
        matrix = _matrix(average, tasks, initial, rng)
        at = 1 if seed in diverged else None
        if at is not None:
            matrix[at:] = np.nan
        spec = cell.run_spec(seed)
        records.append(
            Record(
                key=run_key(spec),
                spec=spec,
                status="finished" if at is None else "diverged",
                diverged_at=at,
                initial=initial.tolist(),
                matrix=matrix.tolist(),
                timings={"cohort_train": 30.0 + len(cell.method.parts), "cohort_evaluate": 1.5},
                environment={
                    "device": "NVIDIA H200",
                    "threefold": "0.1.0",
                    "torch": "2.13.0",
                    "python": "3.11.9",
                    "platform": "Linux-6.1-x86_64",
                    "threads": 8,
                    "git": "48e8f62",
                    "precision": "fp32",
                    "cohort": seeds,
                },
                kept={"dreams": _dreams(tasks, seed)} if "dgr" in cell.method.name else {},
                created=f"2026-03-0{1 + seed % 3}T12:00:{seed % 60:02d}+00:00",
            )
        )
    return Result(cell, records)


def _matrix(average: float, tasks: int, initial: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Each task is learned well when its time comes and then decays, so that the last row has this average."""
    matrix = np.tile(initial, (tasks, 1))
    high = max(97.0, average)
    floor = np.clip((average * tasks - high) / max(1, tasks - 1), 0, 100)
    for task in range(tasks):
        for after in range(task, tasks):
            fallen = 1 - 0.35 ** (after - task)
            matrix[after, task] = np.clip(high + (floor - high) * fallen + 0.3 * rng.standard_normal(), 0, 100)
    last = matrix[-1]
    matrix[-1] = np.clip(last + average - last.mean(), 0, 100)
    for _ in range(50):
        matrix[-1] = np.clip(matrix[-1] + average - matrix[-1].mean(), 0, 100)
    return matrix


@cache
def _dreams(tasks: int, seed: int, side: int = 28) -> dict[str, object]:
    """Rings whose size follows the task: easy to tell apart."""
    y, x = np.mgrid[:side, :side]
    images = np.zeros((tasks, 8, side * side), np.uint8)
    for task in range(tasks):
        for image in range(8):
            radius = np.hypot(x - 13.5 + image / 4, (y - 13.5) * (1 + image / 12))
            ring = np.exp(-((radius - 3 - 1.3 * task - seed / 9) ** 2) / 5)
            images[task, image] = (255 * ring).astype(np.uint8).ravel()
    return pack(images)


def a_table(
    name: str = "table4",
    of: str = "split-mnist",
    methods: Sequence[str] = PAPER,
    seeds: int = 20,
    shift: Callable[[Cell], float] = lambda cell: 0.0,
    **settings: object,
) -> Section:
    """One of the paper's tables, every cell measured near what was published."""
    results, refused = [], []
    for method in methods:
        for scenario in SCENARIOS:
            cell = a_cell(stream(of), scenario, method, **settings)
            reason = cell.refusal()
            if reason:
                refused.append((cell, reason))
                continue
            known = cell.published()
            mean, spread = (known.mean, known.sem * 20**0.5) if known else (70.0, 2.0)
            results.append(a_result(cell, mean + shift(cell), spread, seeds))
    title = f"Table {name[5:]}: {of}, average accuracy over all tasks"
    return Section(name, title, "table", results, refused, command=f"threefold reproduce {name}")


def table_b1(seeds: int = 20) -> Section:
    cut = stream("permuted-mnist")
    results = []
    for method in ["none", "ewc", "online-ewc", "si", "lwf", "dgr", "dgr-distill"]:
        for where in ("output", "hidden"):
            text = method if where == "output" else ("xdg" if method == "none" else f"{method}+xdg")
            known = lookup(cut.title, "task", method, where)
            assert known
            cell = a_cell(cut, "task", text, where)
            results.append(a_result(cell, known.mean, known.sem * 20**0.5, seeds))
    return Section(
        "tableB1", "Table B.1: where the task is used", "table", results, command="threefold reproduce tableB1"
    )


def budgets(of: str = "split-mnist", seeds: int = 20, **settings: object) -> Section:
    """Figure C.1: accuracy grows with the number of stored samples."""
    cut = stream(of)
    sizes = BUDGETS if cut.name == "split" else [10 * size for size in BUDGETS]
    results = []
    for scenario, (low, high) in {"task": (90.0, 99.5), "domain": (64.0, 97.0), "class": (45.0, 95.0)}.items():
        for variant, gain in {"training": 0.0, "execution": -4.0, "both": 1.0, "icarl": 2.0}.items():
            for place, budget in enumerate(sizes):
                text = f"icarl:budget={budget}" if variant == "icarl" else f"er:use={variant},budget={budget}"
                cell = a_cell(cut, scenario, text, **settings)
                if cell.refusal():
                    continue
                share = 1 - 0.6**place
                mean = low + (high - low) * share + gain * (1 - share / 2)
                results.append(a_result(cell, mean, 2 - 1.8 * share, seeds))
    return Section(
        "figureC1", f"Figure C.1: stored data on {of}", "budgets", results, command="threefold reproduce figureC1"
    )


def figure_c1(split: int = 20, permuted: int = 5, **settings: object) -> Section:
    """Both streams, as the paper has them: split MNIST (A), permuted MNIST (B)."""
    results = [
        result
        for of, seeds in (("split-mnist", split), ("permuted-mnist", permuted))
        for result in budgets(of, seeds, **settings).results
    ]
    return Section(
        "figureC1", "Figure C.1: replay of stored data", "budgets", results, command="threefold reproduce figureC1"
    )


def grids(of: str = "split-mnist", seeds: int = 3, decays: Sequence[float] = (0.5, 0.7, 0.8, 0.9, 1.0)) -> Section:
    """Figures D.1 and D.2: a hump at the value that the paper chose."""
    cut = stream(of)
    strengths = [10.0**k for k in range(14 if cut.name == "split" else 8)]
    texts = [f"xdg:share={share:.2f}" for share in np.arange(0, 1, 0.05)]
    texts += [f"ewc:strength={s:g}" for s in strengths]
    texts += [f"online-ewc:strength={s:g},decay={d}" for s in strengths for d in decays]
    texts += [f"si:strength={m * 10.0**k:g}" for k in range(-3, 5) for m in (1, 5)]
    results = []
    for text in texts:
        for scenario in SCENARIOS:
            cell = a_cell(cut, scenario, text)
            if cell.refusal():
                continue
            part = cell.method.parts[0]
            floor = {"task": 86.0, "domain": 59.0, "class": 19.9}[scenario]
            rise = {"task": 13.0, "domain": 6.0, "class": 0.6}[scenario]
            if part.name == "xdg":
                mean = floor + rise * part.share
            else:
                peak = {"task": 7, "domain": 6, "class": 8}[scenario] if part.name != "si" else 2
                mean = floor + rise * np.exp(-((np.log10(part.strength) - peak) ** 2) / 8)
                mean += 3 * (getattr(part, "decay", None) or 1) - 3
            lost = (2,) if text == "ewc:strength=1e+13" and scenario == "class" else ()
            results.append(a_result(cell, float(mean), 0.5, seeds, lost))
    return Section("figureD1", f"Figure D.1: hyperparameters on {of}", "grids", results)


def everything(seeds: int = 20) -> list[Section]:
    def shift(cell: Cell) -> float:
        return -3.0 if cell.method.name == "dgr" and cell.scenario.name == "class" else 0.0

    return [
        a_table(shift=shift, seeds=seeds),
        a_table("table5", "permuted-mnist", seeds=seeds),
        table_b1(seeds),
        figure_c1(seeds),
        grids(),
        grids("permuted-mnist"),
    ]


assert set(PAPER) <= set(METHODS)

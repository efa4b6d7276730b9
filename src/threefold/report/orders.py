"""How much of the spread of a method's accuracy is due to the order of the tasks: one seed in many orders, compared
with many seeds in one order."""

from collections.abc import Sequence

from threefold.experiments import Result, Section
from threefold.report.formatting import title, untuned
from threefold.report.panels import Chart, Line, Panel
from threefold.results import Ordered, Summary, summarize

Both = tuple[Result, tuple[Summary, Summary]]
SIDES = ("orders of the tasks, one seed", "seeds, one order of the tasks")
KEY = (
    "A dot: a run. Bars: mean ± 1 standard deviation. A seed decides first weights, batches and whatever else is drawn;"
    " the order, what the tasks are and when each comes."
)


def orders(section: Section) -> list[Chart]:
    """For each stream a figure with a panel for each scenario, where there are runs of both kinds."""
    found = [(result, sides) for result in section.results if (sides := both_sides(result))]
    charts = []
    for stream in dict.fromkeys(result.cell.stream.title for result, _ in found):
        mine = [(result, sides) for result, sides in found if result.cell.stream.title == stream]
        by_scenario: dict[str, list[Both]] = {}
        for result, sides in mine:
            by_scenario.setdefault(result.cell.scenario.title, []).append((result, sides))
        panels = [_panel(stream, scenario, some) for scenario, some in by_scenario.items()]
        caption = f"Average accuracy over all tasks on {stream}: {_numbers([sides for _, sides in mine])}."
        heading = f"Orders of the tasks beside seeds on {stream}"
        charts.append(Chart(f"{section.name}-{stream}-orders", heading, caption, KEY, panels))
    return charts


def both_sides(result: Result) -> tuple[Summary, Summary] | None:
    """The runs of the seed with most orders, and of the order with most seeds; None if either is a single run."""
    by_seed: dict[int, dict[Ordered, float]] = {}
    by_order: dict[int, dict[Ordered, float]] = {}
    for seed, accuracy in zip(result.seeds, result.accuracy.per_seed, strict=True):
        if isinstance(seed, Ordered):
            by_seed.setdefault(seed.seed, {})[seed] = accuracy
            by_order.setdefault(seed.order, {})[seed] = accuracy
    widest = [max(groups.values(), key=len, default={}) for groups in (by_seed, by_order)]
    if min(map(len, widest)) < 2:
        return None
    one_seed, one_order = (summarize(group.values(), group) for group in widest)
    return one_seed, one_order


def _panel(stream: str, scenario: str, mine: Sequence[Both]) -> Panel:
    brief, full = ([name(result.cell.method) for result, _ in mine] for name in (untuned, title))
    names = brief if len(set(brief)) == len(brief) else full
    lines = [Line(side, range(len(mine)), [sides[hue] for _, sides in mine], hue) for hue, side in enumerate(SIDES)]
    return Panel(stream, scenario, "", False, lines, stream=stream, names=names)


def _numbers(every: Sequence[tuple[Summary, Summary]]) -> str:
    """100 orders of the tasks with one seed beside 100 seeds with one order."""
    orders, seeds = ([sides[side].n for sides in every] for side in (0, 1))
    many = [f"{min(n)} to {max(n)}" if min(n) < max(n) else f"{n[0]}" for n in (orders, seeds)]
    return f"{many[0]} orders of the tasks with one seed beside {many[1]} seeds with one order"

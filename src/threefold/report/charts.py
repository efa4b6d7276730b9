"""The figures of whole experiments, in addition to those of single tables."""

from collections.abc import Sequence

from threefold.experiments import Section
from threefold.report.budgets import budgets
from threefold.report.during_training import after_switches
from threefold.report.grids import grids
from threefold.report.matched import matched
from threefold.report.orders import orders
from threefold.report.panels import Chart
from threefold.results import Ordered


def charts(sections: Sequence[Section]) -> list[tuple[Section, Chart]]:
    """One figure for each experiment over budgets; one for each stream of an experiment over hyperparameters, about the
    steps after a switch of tasks, or with seeds in several orders of the tasks; if asked for, over operations."""
    every = [result for section in sections if section.kind == "table" for result in section.results]
    tables = [result for result in every if not any(isinstance(seed, Ordered) for seed in result.seeds)]
    found = []
    for section in sections:
        if section.kind == "budgets":
            drawn = [budgets(section, tables)]
        elif section.kind == "grids":
            drawn = grids(section, tables)
        else:
            drawn = after_switches(section) + orders(section)
        drawn += matched(section) if section.matched else []
        found += [(section, chart) for chart in drawn if chart.panels]
    return found

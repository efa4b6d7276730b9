"""The three scenarios as values: the meaning of output units, and what is known at test time."""

from threefold.scenarios.scenario import SCENARIOS, Active, Outputs, Scenario, TaskIdIn, find, find_all

__all__ = ["SCENARIOS", "Active", "Outputs", "Scenario", "TaskIdIn", "find", "find_all"]

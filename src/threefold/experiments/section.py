"""What an experiment came to so far: the input of every report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from threefold.experiments.cell import Cell
from threefold.experiments.result import Result
from threefold.results import Record

Kind = Literal["table", "budgets", "grids"]


@dataclass(frozen=True, eq=False)
class Section:
    """One experiment's results.

    A "table" compares methods in scenarios; "budgets" (figure C.1) draws accuracy over the number of stored samples;
    "grids" (figures D.1 and D.2) draws accuracy over a hyperparameter.
    """

    name: str  # for example table4
    title: str
    kind: Kind
    results: Sequence[Result]  # cells with at least one finished run, in the order of the experiment
    refused: Sequence[tuple[Cell, str]] = ()  # pairs that make no sense, with the reason: the dashes
    cells: Sequence[Cell] = ()  # all that were asked for, with results or without
    left: int = 0  # runs that are still to be trained
    lacking: Mapping[Cell, int] = field(default_factory=dict)  # how many of them a cell lacks, held-out data aside
    selected: str = "oracle"  # how the hyperparameters were chosen
    validation: Sequence[Result] = ()  # the same grid on a share of the first tasks' training data held out
    notes: Mapping[str, str] = field(default_factory=dict)  # a method, as `written`: a remark on it
    command: str = ""  # what makes these results
    shortened: Sequence[str] = ()  # what is less than the experiment's own file asks for, in words

    @property
    def records(self) -> list[Record]:
        """Every run behind it, those on held-out data among them."""
        return [record for result in (*self.results, *self.validation) for record in result.records]

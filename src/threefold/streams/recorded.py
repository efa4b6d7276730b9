"""A stream rebuilt from the store for reports, without its data or code."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.streams.boundaries import BOUNDARIES, SHARP
from threefold.streams.find import STREAMS
from threefold.streams.stream import Stream
from threefold.streams.task import Task
from threefold.values import build, written_as


class RecordedStream(Stream):
    """A stream with a name, the name of its data and its options, but without tasks."""

    def __init__(self, spec: Mapping[str, Any], text: str | None = None) -> None:
        name, _, data = spec["name"].partition("-")
        x, y = torch.empty(0, 0), torch.empty(0, 0).long()
        features = spec.get("features") or ""
        self.data = Dataset(data, x, y, x, y, spec["data"], spec.get("normalized", False), features)
        self.name = name  # type: ignore[misc]
        self.cut, self.only, self.text = spec["tasks"], spec.get("first"), text
        self._spec = spec
        if kind := STREAMS.get(name):
            self.defaults = kind.defaults  # type: ignore[misc]
            self._usual = getattr(kind, "usual_tasks_of", {}).get(data, kind.default_tasks)
        if ends := spec.get("boundaries"):
            self.boundaries = build(BOUNDARIES, "boundaries", ends["name"], ends["hyperparameters"])
        else:
            self.boundaries = SHARP

    _usual = None

    @property
    def label(self) -> str:
        return self.title + written_as(None, "", self._spec.get("options", {}))

    def details(self) -> dict[str, Any]:
        return {name: self._spec[name] for name in ("options", "boundaries", "column") if name in self._spec}

    def sequence(self, seed: int) -> Sequence[Task]:
        raise ThreefoldError(f"stream {self.title} is read from a store, without its data; give it again.")

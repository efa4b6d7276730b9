"""What was run, where, when and for how long."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from threefold.experiments import Section
from threefold.report.formatting import count, duration, moment
from threefold.results import Record

KNOWN = ("device", "precision", "threefold", "git", "torch", "python", "platform", "threads")


@dataclass(frozen=True)
class Origin:
    """Runs that were computed in the same place with the same software."""

    environment: dict[str, str]
    runs: int
    seconds: float  # machine time, which networks trained together share
    first: str
    last: str

    @property
    def device(self) -> str:
        return self.environment.get("device", "unknown device")

    @property
    def sentence(self) -> str:
        """How much was run there, when and for how long."""
        precision = f" ({self.environment['precision']})" if "precision" in self.environment else ""
        return (
            f"{count(self.runs, 'run')} in {duration(self.seconds)} of machine time{precision},"
            f" from {moment(self.first)} to {moment(self.last)}."
        )

    @property
    def software(self) -> str:
        named = {name: value for name, value in self.environment.items() if name not in ("device", "precision")}
        return ", ".join(f"{name} {value}" for name, value in named.items())


def provenance(sections: Sequence[Section]) -> list[Origin]:
    """The runs of these sections, each counted once, by the place they were computed in."""
    groups: dict[tuple[tuple[str, str], ...], list[Record]] = {}
    for record in distinct(sections):
        place = tuple((name, str(value)) for name in KNOWN if (value := record.environment.get(name)) is not None)
        groups.setdefault(place, []).append(record)
    origins = []
    for place, records in groups.items():
        created = sorted(record.created for record in records)
        origins.append(Origin(dict(place), len(records), machine_seconds(records), created[0], created[-1]))
    return sorted(origins, key=lambda origin: origin.first)


def distinct(sections: Sequence[Section]) -> list[Record]:
    """The runs of these sections, each once even if several sections show it."""
    return list({record.key: record for section in sections for record in section.records}.values())


def machine_seconds(records: Iterable[Record]) -> float:
    """The machine time of these runs."""
    return sum(record.seconds for record in records)

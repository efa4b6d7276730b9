"""Checkpoints: a cohort's state, saved after each finished task."""

import os
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO, Any
from uuid import uuid4
from zipfile import BadZipFile
from zlib import crc32

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch.utils.serialization import config

from threefold.errors import ThreefoldError
from threefold.reading import NotAFile, check_saved, open_file

FORMAT = 5
CHUNK = 1 << 24


class Checkpoint:
    """One cohort's file. It is written atomically; a damaged one is set aside and never used in part."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set_aside: Path | None = None  # where a damaged file went

    def save(self, state: dict[str, Any]) -> None:
        """Replace the file by this state."""

        def write(path: Path) -> None:
            # without checksums of its parts, which take half of the time: the seal has one of the whole file
            with config.patch("save.compute_crc32", False):  # type: ignore[attr-defined]
                torch.save(state, path)  # by path: PyTorch then writes without Python, and training continues
            with path.open("rb") as file:
                seal = self._seal(_sum(file, path.stat().st_size))
            with path.open("ab") as file:
                file.write(seal)

        self._replace(write)

    def keep(self, content: bytes) -> None:
        """Replace the file by content that was written on another machine."""
        self._replace(lambda path: path.write_bytes(content))

    def _replace(self, write: Callable[[Path], object]) -> None:
        temporary = self.path.with_suffix(f".{uuid4().hex}.tmp")  # a new name, so that no link is followed
        self._make_folder()
        try:
            write(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except (OSError, RuntimeError) as error:
            raise self._unwritten(error) from error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritten(error) from error

    def _unwritten(self, error: Exception) -> ThreefoldError:
        return ThreefoldError(
            f"checkpoint '{self.path}' cannot be written ({error}); use a store in a folder with space."
        )

    def load(
        self, device: torch.device, fits: Callable[[dict[str, Any]], bool] = lambda state: True
    ) -> dict[str, Any] | None:
        """The state after the last finished task; None if there is no usable one.

        A file that is not what we wrote, or does not fit, counts as damaged and is set aside. Too little memory or a
        failing disk is not damage: the file stays and can be used later.
        """
        self._make_folder()  # better to fail now than after the first task
        try:
            state = _unpacked(self.path) if self._is_whole() else None
            if isinstance(state, dict) and fits(state):
                loaded: dict[str, Any] = tree_map_only(Tensor, lambda tensor: tensor.to(device), state)
                return loaded
        except FileNotFoundError:
            return None
        except (OSError, MemoryError, RuntimeError) as error:
            why = str(error).partition("\n")[0] or "no memory"
            raise ThreefoldError(
                f"checkpoint '{self.path}' cannot be loaded now ({why}); it was not touched; give the same command "
                "again where there is more memory or the disk can be read, or delete it to begin its runs anew."
            ) from error
        self._set_aside()
        return None

    def content(self) -> bytes | None:
        """The whole file, for another machine; None if there is no usable one."""
        try:
            if self._is_whole():
                return self.path.read_bytes()
        except FileNotFoundError:
            return None
        except (OSError, MemoryError) as error:
            raise ThreefoldError(f"checkpoint '{self.path}' cannot be read ({error}); it was not touched.") from error
        self._set_aside()
        return None

    def discard(self) -> None:
        """The cohort is done: delete its file and what killed processes left of it."""
        for path in (self.path, *self.path.parent.glob(f"{self.path.stem}.*.tmp")):
            with suppress(OSError):
                path.unlink()
        with suppress(OSError):
            self.path.parent.rmdir()  # fails if other cohorts have files there

    def _seal(self, total: int) -> bytes:
        """The end of the file: the cohort's name and a checksum, as torch.load does not notice a flipped bit."""
        return f"\nthreefold checkpoint {FORMAT} of {self.path.stem}, sum {total:08x}\n".encode()

    def _is_whole(self) -> bool:
        """Is it a file, not a link or a pipe, with the right seal?"""
        try:
            with open_file(self.path, follow=False) as file:
                size = os.fstat(file.fileno()).st_size - len(self._seal(0))
                seal = self._seal(_sum(file, max(0, size)))
                return file.read(len(seal) + 1) == seal
        except NotAFile:
            return False

    def _set_aside(self) -> None:
        names = (self.path.with_suffix(f".{n}.damaged" if n else ".damaged") for n in count())
        aside = next(name for name in names if not name.exists())
        try:
            self.path.replace(aside)
        except OSError as error:
            raise ThreefoldError(
                f"checkpoint '{self.path}' is damaged, and cannot be set aside ({error}); delete it."
            ) from error
        self.set_aside = aside


def _sum(file: IO[bytes], size: int) -> int:
    """The checksum of the next `size` bytes."""
    total = 0
    while size and (chunk := file.read(min(size, CHUNK))):
        total, size = crc32(chunk, total), size - len(chunk)
    return total


def _unpacked(path: Path) -> Any:
    """A file's content; None if PyTorch cannot read it, or it would be larger in memory than on disk."""
    try:
        with path.open("rb") as file:
            check_saved(file, path.stat().st_size)
    except (BadZipFile, ValueError):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about pickles that are not ours
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, MemoryError):
            raise
        except Exception as error:
            if re.search("allocate memory|out of memory", str(error)):
                raise
            return None

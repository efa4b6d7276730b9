"""The folder of datasets: files are found, verified, set aside when damaged, and stored atomically."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep

from threefold.data.catalog import CATALOG, File, KnownDataset, NotTheFile
from threefold.data.progress import Report
from threefold.errors import ThreefoldError
from threefold.reading import open_file

VARIABLE = "THREEFOLD_DATA"


def home() -> Path:
    """The folder of all datasets: THREEFOLD_DATA if it is set, or else the user's cache."""
    try:
        if chosen := os.environ.get(VARIABLE):
            return Path(chosen).expanduser()
        caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
        return (caches if caches.is_absolute() else Path.home() / ".cache") / "threefold"
    except RuntimeError as error:
        raise ThreefoldError(f"this user has no home folder to keep data in; set {VARIABLE} to a folder.") from error


@dataclass
class Survey:
    """The state of the folder. The contents in `found` are verified, and used from memory as they were verified."""

    found: dict[File, bytes] = field(default_factory=dict)
    paths: dict[File, Path] = field(default_factory=dict)
    damaged: dict[Path, str] = field(default_factory=dict)


class Cache:
    """The files of one dataset: in `root/NAME`, where new ones are stored, or where the user may have put them, in
    `root` or in a folder below it; unpacked, or as NAME.gz."""

    def __init__(self, root: Path, entry: KnownDataset) -> None:
        self.root, self.entry = root, entry
        self.folder = root / entry.name
        self.folders = (self.folder, root / entry.folder)

    def survey(self) -> Survey:
        """Read and verify all existing files. Changes nothing."""
        survey = Survey()
        for file in self.entry.files:
            for path in (folder / name for folder in self.folders for name in (file.name, f"{file.name}.gz")):
                try:
                    with open_file(path) as stream:
                        data = stream.read(file.limit + 1)
                    survey.found[file] = file.accept(data)
                    survey.paths[file] = path
                    break
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except NotTheFile as reason:
                    if path.parent == self.folder or not self._is_of_another(file.name, data):
                        survey.damaged[path] = str(reason)
                except OSError as error:
                    survey.damaged[path] = f"cannot be read ({error.strerror})"
        return survey

    def _is_of_another(self, name: str, data: bytes) -> bool:
        """Is this an intact file of another dataset? MNIST and similar datasets use the same file names."""
        for file in (file for other in CATALOG.values() if other != self.entry for file in other.files):
            with suppress(NotTheFile):
                if file.name == name and file.accept(data):
                    return True
        return False

    def set_aside(self, path: Path) -> Path | None:
        """Rename a damaged file without overwriting another; None if that is not possible."""
        aside = path.with_name(f"{path.name}.damaged")
        count = 1
        while aside.exists():
            count += 1
            aside = path.with_name(f"{path.name}.{count}.damaged")
        try:
            path.rename(aside)
        except OSError:
            return None
        return aside

    def put(self, file: File, data: bytes) -> Path:
        """Store verified contents atomically, even if the process is killed."""
        part = self.folder / f".{file.name}.{token_hex(6)}.part"
        try:
            with part.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            return part.replace(self.folder / file.name)
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)

    @contextmanager
    def writing(self, survey: Survey, report: Report, patience: float = 3600.0) -> Iterator[None]:
        """Lock the folder to repair what `survey` showed, one process at a time; an unwritable one is refused.

        The lock avoids a second download and keeps a file just repaired from being set aside. Files are complete even
        without it, so if locks do not work, or another process holds it for too long, we continue without it.
        """
        probe = self.folder / f".{token_hex(6)}.part"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe.touch(exist_ok=False)
            probe.unlink(missing_ok=True)
        except OSError as error:
            raise self._unwritable(error, survey) from error
        with self._lock_file() as lock:
            if self._locked(lock, report, patience):
                for stale in self.folder.glob(
                    ".*.part"
                ):  # under the lock nobody else writes: their writers were killed
                    with suppress(OSError):
                        stale.unlink()
            yield

    @contextmanager
    def _lock_file(self) -> Iterator[int | None]:
        """Open the lock, which in a shared folder may belong to another user and be read-only."""
        lock = None
        for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
            with suppress(OSError):
                lock = os.open(self.folder / ".lock", flags, 0o666)
                break
        try:
            yield lock
        finally:
            if lock is not None:
                os.close(lock)

    def _locked(self, lock: int | None, report: Report, patience: float) -> bool:
        begun = monotonic()
        while lock is not None and monotonic() - begun < patience:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                report(f"another process is fetching {self.entry.name}", 0, None)
                sleep(0.1)
            except OSError:
                return False
        return False

    def _unwritable(self, error: OSError, survey: Survey | None = None) -> ThreefoldError:
        damaged = survey.damaged if survey else {}
        also = "".join(f", and its file '{path.name}' is damaged ({why})" for path, why in damaged.items())
        return ThreefoldError(
            f"data folder '{self.folder}' cannot be written ({error.strerror}){also}; "
            f"set {VARIABLE} to a folder that can, or to one that holds the files of {self.entry.name}."
        )

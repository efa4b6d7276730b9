"""Where commands write: over an earlier file of the same kind, but never over a store or anything else."""

from collections.abc import Sequence
from pathlib import Path

from threefold.errors import ThreefoldError
from threefold.results.database import is_database


def check_output(file: Path, endings: Sequence[str], store: Path | None = None) -> None:
    """Refuse a file that is there and is the store, a database, or, by its name, not of the kind that is written."""
    target = file.resolve()
    if not target.is_file():
        return
    if store is not None and store.exists() and target.samefile(store):
        raise ThreefoldError(f"file '{file}' is the store itself; right would be another file.")
    if target.stat().st_size == 0:  # as mktemp makes them: nothing is lost
        return
    right = f"right would be a name that is not in use, or one that ends in {' or '.join(endings)}"
    if not target.name.lower().endswith(tuple(endings)):
        raise ThreefoldError(f"file '{file}' is there already and seems to be of another kind; {right}.")
    if is_database(target):
        raise ThreefoldError(f"file '{file}' is a database, in spite of its name; right would be another file.")

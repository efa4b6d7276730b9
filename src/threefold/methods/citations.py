"""The paper of each method, as BibTeX."""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from threefold.methods.method import Method

BASELINES = "vandeven2019"
KEY = re.compile(r"[A-Za-z0-9:._+-]+")


def citation_of(method: Method) -> list[str]:
    """The keys of the papers of a method's parts, each once; of a user's part, what its `citation` says."""
    keys = [part.citation for part in method.parts] or [BASELINES]
    return [key for key in dict.fromkeys(keys) if KEY.fullmatch(key)]


@cache
def entries() -> dict[str, str]:
    """All entries of citations.bib, by key."""
    text = files("threefold.methods").joinpath("citations.bib").read_text(encoding="utf-8")
    found = re.split(r"\n(?=@)", text.strip())
    return {re.match(r"@\w+\{([^,]+),", entry)[1]: entry.strip() for entry in found}  # type: ignore[index]


def bibliography(keys: Iterable[str]) -> str:
    """The entries of these keys; those of a user's methods are the user's."""
    return "\n\n".join(entries()[key] for key in dict.fromkeys(keys) if key in entries()) + "\n"

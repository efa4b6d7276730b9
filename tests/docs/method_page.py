"""Shared by the tests of docs/your-own-method.md: the page's settings and its classes."""

import re

from doc_pages import Desk, blocks

PAGE = "your-own-method.md"
SEEDS = 20
QUICK = {"scenario": "class", "seeds": 2, "store": None, "iters": 3, "hidden": 8, "batch": 16, "device": "cpu"}
TASKS, STEPS, REPLICAS = 5, QUICK["iters"], QUICK["seeds"]


def written() -> dict[str, str]:
    """The code of each class in a file of the reader's, with all that its block holds besides."""
    code = [block.code for block in blocks(PAGE) if re.match(r"# (my|more)_methods\.py", block.code)]
    return {re.search(r"class (\w+)", each)[1]: each for each in code}  # type: ignore[index]


def printed(followed: Desk, piece: str) -> str:
    """What the block that holds this piece printed."""
    (found,) = [followed.printed[block.line] for block in blocks(PAGE) if piece in block.code]
    return found

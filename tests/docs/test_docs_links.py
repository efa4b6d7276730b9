"""The pages of docs/: what they point to is there."""

import re

import pytest
from doc_pages import DOCS

PAGES = sorted(path.name for path in DOCS.glob("*.md"))


def anchors(page: str) -> set[str]:
    """Headings as GitHub turns them into addresses."""
    headings = re.findall(r"^#+ (.+)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", (DOCS / page).read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        assert (DOCS / (file or page)).exists(), target
        assert not anchor or anchor in anchors(file or page), target

"""What mkdocs needs to make a site of the pages as they are: the repository's own pages, and links out of docs/."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {"index.md": "README.md", "architecture.md": "ARCHITECTURE.md", "changelog.md": "CHANGELOG.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Pages of the repository's root become pages of the site."""
    for page, source in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """A link to a page of the site leads there; one to a file that only the repository has becomes plain text."""
    source = PAGES.get(page.file.src_uri)
    folder = "" if source else "docs"
    on_site = {name: target for target, name in PAGES.items()}

    def led(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        found = on_site.get(path) or path.removeprefix("docs/")
        inside = path.startswith("docs/") or path in on_site
        if inside and files.get_file_from_path(found):
            return f"{image}[{text}]({found}{anchor or ''})"
        return text

    return LINK.sub(led, markdown)

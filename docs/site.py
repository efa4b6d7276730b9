"""What mkdocs needs to make a site of the pages: the repository's own pages, notebooks, links out of docs/."""

import json
import posixpath
import re
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {"index.md": "README.md", "architecture.md": "ARCHITECTURE.md", "changelog.md": "CHANGELOG.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Pages of the repository's root, and notebooks, become pages of the site."""
    for page, source in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=_notebook(cells, path.name)))
    return files


def _notebook(cells: list[dict[str, Any]], file: str) -> str:
    """A notebook as Markdown: text, code, and what the code put out as it is stored."""
    told = []
    for cell in cells:
        source = "".join(cell["source"])
        told.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        told += [_output(output) for output in cell.get("outputs", [])]
    told.insert(1, f'<p><a href="{file}" download>Download this page as a Jupyter notebook</a></p>')
    return "\n\n".join(told)


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return (
            f'<p><img alt="the figure that the code above draws" src="data:image/png;base64,{data["image/png"]}"></p>'
        )
    if "text/html" in data:
        return f'<div class="output">{"".join(data["text/html"])}</div>'
    text = "".join(output.get("text") or data["text/plain"])
    return f'<pre class="output"><code>{escape(text)}</code></pre>'


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """A link to a page of the site leads there; one to a file that only the repository has becomes plain text."""
    here = page.file.src_uri
    source = PAGES.get(here) or f"docs/{here}"
    on_site = {name: target for target, name in PAGES.items()}

    def led(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        found = on_site.get(path) or path.removeprefix("docs/").replace(".ipynb", ".md")
        inside = path.startswith("docs/") or path in on_site
        if inside and files.get_file_from_path(found):
            return f"{image}[{text}]({posixpath.relpath(found, posixpath.dirname(here) or '.')}{anchor or ''})"
        return text

    return LINK.sub(led, markdown)

"""Runs the notebooks of docs/notebooks and stores what their cells print and draw.

    python docs/run_notebooks.py [NAME …]

The cells run in this process, one namespace for each notebook. That takes no Jupyter, so tests can run them too.
"""

import ast
import base64
import io
import json
import os
import sys
from collections.abc import Mapping
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

os.environ["MPLBACKEND"] = "agg"

NOTEBOOKS = Path(__file__).parent / "notebooks"


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def executed(notebook: Mapping[str, Any], replacing: Mapping[str, str] | None = None) -> list[list[dict[str, Any]]]:
    """What each code cell put out. `replacing`: text of cells that is replaced, such as `iters=200` by `iters=5`."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    found = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            for old, new in (replacing or {}).items():
                source = source.replace(old, new)
            found.append(_outputs(source, namespace, cell["id"]))
    return found


def _outputs(source: str, namespace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Run one cell: what it printed, the value of its last line, and the figures it drew."""
    from matplotlib import pyplot

    tree, value = ast.parse(source, name), None
    quiet = source.rstrip().endswith(";")
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    found: list[dict[str, Any]] = []
    if text := printed.getvalue():
        found.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)})
    if value is not None and not quiet:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        found.append({"output_type": "execute_result", "execution_count": None, "data": data, "metadata": {}})
    for number in pyplot.get_fignums():
        picture = io.BytesIO()
        pyplot.figure(number).savefig(picture, format="png", dpi=90)
        data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": ["<Figure>"]}
        found.append({"output_type": "display_data", "data": data, "metadata": {}})
    pyplot.close("all")
    return found


def store(path: Path) -> None:
    """Run a notebook in its folder, as Jupyter does, and write it with its outputs."""
    notebook = read(path)
    with chdir(path.parent):
        outputs = executed(notebook)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, (cell, found) in enumerate(zip(code, outputs, strict=True), 1):
        for output in found:
            if "execution_count" in output:
                output["execution_count"] = count
        cell["outputs"], cell["execution_count"] = found, count
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for each in sorted(NOTEBOOKS.glob("*.ipynb")):
        if each.stem in sys.argv[1:] or not sys.argv[1:]:
            store(each)
            print(each.relative_to(NOTEBOOKS.parent))

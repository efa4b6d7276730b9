"""The report as LaTeX (booktabs), to be pasted into a paper."""

from collections.abc import Sequence

from threefold.experiments import Section
from threefold.report.document import Block, Heading, Items, Table, Text, document
from threefold.report.metric_table import Column

PREAMBLE = r"% needs \usepackage[utf8]{inputenc} \usepackage[T1]{fontenc} \usepackage{booktabs,longtable}"
LONG = 40  # the most rows that fit on a page

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",
    "]": "{]}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "×": r"$\times$",
    "✓": r"$\surd$",
    "✗": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "′": r"$'$",
    "’": r"\textquoteright{}",
    "“": r"\textquotedblleft{}",
    "”": r"\textquotedblright{}",
    "λ": r"$\lambda$",
    "γ": r"$\gamma$",
    "ξ": r"$\xi$",
    "θ": r"$\theta$",
    "ψ": r"$\psi$",
    "Ω": r"$\Omega$",
    "ω": r"$\omega$",
}


def render(sections: Sequence[Section], columns: Sequence[Column] = (), *, cite: bool = False) -> str:
    blocks = document(sections, columns=columns, cite=cite)
    return "\n\n".join([PREAMBLE, *map(_block, blocks)]) + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading():
            return rf"\{'sub' * (block.level - 2)}section*{{{escape(block.text)}}}"
        case Text():
            return escape(block.text)
        case Items():
            items = "\n".join(rf"  \item {{}}{escape(item)}" for item in block.items)
            return f"\\begin{{itemize}}\n{items}\n\\end{{itemize}}"
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    columns = "l" * table.left + "r" * (len(table.header) - table.left)
    head = rf"{_row(table.header)} \midrule"
    body = []
    for place, row in enumerate(table.rows):
        if place and table.groups and table.groups[place] != table.groups[place - 1]:
            body.append(r"\addlinespace")
        cited = rf" \cite{{{table.cited[place]}}}" if table.cited and table.cited[place] else ""
        cells = [_cell(text, bold=(place, at) in table.bold) for at, text in enumerate(row)]
        cells[table.left - 1] += cited
        body.append(" & ".join(cells) + r" \\")
    lines = "\n".join(f"  {line}" for line in body)
    if len(body) > LONG:
        return (
            f"{{\\scriptsize\\setlength{{\\tabcolsep}}{{3pt}}\n\\begin{{longtable}}{{{columns}}}\n"
            f"  \\caption{{{escape(table.caption)}}} \\\\ \\toprule\n  {head} \\endfirsthead\n"
            f"  \\toprule {head} \\endhead\n{lines}\n  \\bottomrule\n\\end{{longtable}}}}"
        )
    size = "small" if len(table.header) < 7 else "scriptsize"
    return (
        f"\\begin{{table}}[htbp]\n  \\centering\n  \\caption{{{escape(table.caption)}}}\n"
        f"  \\{size}\\setlength{{\\tabcolsep}}{{3pt}}\n"
        f"  \\begin{{tabular}}{{{columns}}} \\toprule\n  {head}\n{lines}\n"
        "  \\bottomrule\n  \\end{tabular}\n\\end{table}"
    )


def _row(cells: Sequence[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"


def _cell(text: str, *, bold: bool) -> str:
    return rf"\textbf{{{escape(text)}}}" if bold else escape(text)


def escape(text: str) -> str:
    """Text with all commands escaped; characters that LaTeX's usual fonts lack are given by their code."""
    return "".join(map(_character, " ".join(text.split())))


def _character(character: str) -> str:
    if character in SPECIAL:
        return SPECIAL[character]
    if " " <= character <= "~" or ("\u00c0" <= character <= "\u017e" and character not in "×÷ĦħĸŉŦŧ"):
        return character
    return f"U+{ord(character):04X}"

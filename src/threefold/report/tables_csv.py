"""The report as CSV: one row for each cell, in full precision."""

import csv
import io
import json
import math
from collections.abc import Sequence

from threefold.experiments import Section
from threefold.experiments.description import written
from threefold.report.metric_table import COSTS, Column, columns
from threefold.report.paper_tables import bests_of
from threefold.report.provenance import machine_seconds
from threefold.report.tables import ResultTable, TableCell, result_tables

COLUMNS = (
    *("experiment", "stream", "scenario", "task_id_in", "approach", "method", "written", "hyperparameters"),
    *("selected", "tasks", "boundaries", "network", "optimizer", "schedule", "iters", "epochs", "batch"),
    *("augment", "normalize", "features", "precision", "device"),
    *("seeds", "diverged_seeds", "mean", "sem", "sd", "min", "max", "per_seed"),
)
ONLY = 7  # of these identify a cell
VERDICT = (
    *("published_mean", "published_sem", "published_n"),
    *("difference", "difference_low", "difference_high", "p", "allowed", "verdict"),
    *("differs_significantly_from", "explanation", "refused", "machine_seconds", "first_created", "last_created"),
)


def render(sections: Sequence[Section], chosen: Sequence[Column] = ()) -> str:
    """The CSV text. Missing numbers are empty; refused combinations have a row with the reason.

    `chosen`: only what identifies a cell, and these metrics and costs. `best`: those in which it is the best of its
    scenario or not significantly worse.
    """
    text = io.StringIO()
    every = [*columns().values()]
    measured = chosen or [each for each in every if each.name not in ("average_accuracy", *COSTS)]
    names = [f"{each.name}{kind}" for each in measured for kind in ("", "_sem") if not (kind and each.name in COSTS)]
    fields = [*COLUMNS[:ONLY], "seeds", *names, "best"] if chosen else [*COLUMNS, *names, *VERDICT, "best"]
    writer = csv.DictWriter(text, fields, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for section in sections:
        for table in result_tables(section):
            pairs = {column.title: column for column in table.significance} if section.kind == "table" else {}
            bests = bests_of(table, chosen or [each for each in every if each.name not in COSTS])
            for found in table.cells:
                row = _row(table, found, pairs[found.column].unlike(found.row) if pairs else [])
                for each in measured:
                    value = each.value(table, found)
                    row |= {each.name: value.mean, f"{each.name}_sem": value.sem}
                best = [
                    name for (column, name), of in bests.items() if column == found.column and found.row in of.names
                ]
                row["best"] = "; ".join(best)
                writer.writerow({name: plain(value) for name, value in row.items()})
            for dash in table.refused:
                row = {"experiment": section.name, "stream": table.stream, "scenario": dash.column}
                row |= {"approach": dash.strategy, "method": dash.row, "refused": dash.reason}
                writer.writerow({name: plain(value) for name, value in row.items()})
    return text.getvalue()


def _row(table: ResultTable, found: TableCell, unlike: Sequence[str]) -> dict[str, object]:
    training = found.cell.training
    cell, accuracy, judged, published = found.cell, found.accuracy, found.verdict, found.result.published
    records = found.result.records
    created = sorted(record.created for record in records)
    row: dict[str, object] = {
        "experiment": table.section.name,
        "stream": table.stream,
        "scenario": found.column,
        "task_id_in": cell.task_id_in,
        "approach": found.strategy,
        "method": found.row,
        "written": written(cell.method),
        "hyperparameters": json.dumps(cell.method.hyperparameters()),
        "selected": table.section.selected,
        "tasks": cell.stream.tasks,
        "boundaries": cell.stream.boundaries.written(),
        "network": training.network.written(),
        "optimizer": cell.optimizer.written(),
        "schedule": training.schedule.written(),
        **{name: getattr(training, name) for name in ("iters", "epochs", "batch", "augment", "precision", "device")},
        "normalize": cell.stream.data.is_normalized,
        "features": cell.stream.data.encoder or cell.stream.data.features,
        "seeds": accuracy.n,
        "diverged_seeds": " ".join(map(str, found.result.diverged)),
        "mean": accuracy.mean,
        "sem": accuracy.sem,
        "sd": found.spread,
        "min": found.lowest,
        "max": found.highest,
        "per_seed": " ".join(repr(value) for value in accuracy.per_seed),
        "verdict": found.judgement,
        "differs_significantly_from": "; ".join(unlike),
        "explanation": str(found.explanation or ""),
        "machine_seconds": machine_seconds(records),
        "first_created": created[0],
        "last_created": created[-1],
    }
    if published:
        row |= {"published_mean": published.mean, "published_sem": published.sem, "published_n": published.n}
    if judged:
        d = judged.difference
        row |= {"difference": d.value, "difference_low": d.low, "difference_high": d.high, "p": d.p}
        row["allowed"] = judged.allowed
    return row


def plain(value: object) -> object:
    """A value for a CSV field: NaN is empty, and text that a spreadsheet would evaluate is quoted.

    A carriage return becomes a line feed, as Python does not quote it and readers would start a row there.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text[:1] in tuple("=+-@\t\n") else text

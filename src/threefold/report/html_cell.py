"""One cell of a table in detail, as part of the page."""

import json
import math
from html import escape

from threefold.report import svg
from threefold.report.evidence import Evidence
from threefold.report.figures import dreams, mosaic
from threefold.report.provenance import machine_seconds
from threefold.report.words import count, difference, duration, moment, number, plus_minus

MEASURES = {
    "learning_accuracy": ("Learning accuracy", "on each task right after it was learned"),
    "forgetting": ("Forgetting", "fall from the best accuracy ever had"),
    "backward_transfer": ("Backward transfer", "what later tasks did to earlier ones"),
    "forward_transfer": ("Forward transfer", "what earlier tasks did for later ones"),
}


def detail(found: Evidence, name: str) -> str:
    """A cell that unfolds. The name stands inside, so that a link to it opens what hides it."""
    return (
        f'<details><summary>{line(found)}</summary><div class="cell" id="{name}">{inside(found, name)}</div></details>'
    )


def line(found: Evidence) -> str:
    """What is seen of a cell that is folded."""
    verdict = f'<span class="verdict {found.code}">{escape(f"{found.symbol} {found.judgement}".strip())}</span>'
    return f"<b>{escape(found.row)}</b>, {escape(found.column)} <span>{plus_minus(found.accuracy)}</span> {verdict}"


def inside(found: Evidence, name: str) -> str:
    """Everything about a cell's runs."""
    result, accuracy = found.result, found.accuracy
    texts = [_text(found)]
    if found.explanation:
        texts.append(f"<p>{escape(str(found.explanation))}</p>")
    if found.diverged:
        texts.append(f"<p>{escape(found.diverged)}.</p>")
    cards = [card("Seeds", svg.seeds(accuracy, result.published) + _measures(found))]
    if found.learned:
        cards.append(card("Accuracy on each task as training goes on", svg.forgetting(result.initial, result.matrix)))
        square = svg.heat_map(result.matrix).replace("<svg ", '<svg class="square" ', 1)
        cards.append(card("Accuracy matrix", square))
    images = dreams(found)
    if images is not None:
        alt = f"Images of the generator after each of {count(len(images), 'task')}, a row for each"
        shown = f'<img class="dreams" src="{svg.picture(mosaic(images))}" alt="{escape(alt)}">'
        cards.append(card("What the generator dreams after each task (down), first seed", shown + _permuted(found)))
    return f'{"".join(texts)}<div class="cards">{"".join(cards)}</div>{_runs(found)}{_again(found, name)}'


def card(title: str, body: str) -> str:
    return f"<div><h4>{escape(title)}</h4>{body}</div>"


def _text(found: Evidence) -> str:
    accuracy, judged = found.accuracy, found.verdict
    parts = [f"{plus_minus(accuracy)} over {count(accuracy.n, 'seed')}"]
    if accuracy.n > 1 and accuracy.mean == accuracy.mean:
        parts.append(
            f"standard deviation {number(found.spread)}, from {number(found.lowest)} to {number(found.highest)}"
        )
    if found.paper:
        parts.append(f"published {found.theirs} ({found.paper.table}, n = {found.paper.n})")
    if judged:
        parts.append(f"difference {difference(judged.difference)}, allowed {number(judged.allowed)}")
    return f"<p>{escape('; '.join(parts))}.</p>"


def _measures(found: Evidence) -> str:
    known = {name: value for name, value in found.result.metrics.items() if not math.isnan(value.mean)}
    rows = "".join(
        f'<tr><td title="{escape(meaning)}">{escape(title)}</td><td>{plus_minus(known[name])}</td></tr>'
        for name, (title, meaning) in MEASURES.items()
        if name in known
    )
    return f'<table class="small-table"><tbody>{rows}</tbody></table>' if rows else ""


def _permuted(found: Evidence) -> str:
    if found.cell.stream.name != "permuted":
        return ""
    return "<p><small>Pixels are permuted, so that a good dream looks like noise.</small></p>"


def _runs(found: Evidence) -> str:
    """Per seed accuracies, hyperparameters, and when it was trained."""
    result, cell, training = found.result, found.cell, found.cell.training
    created = sorted(record.created for record in result.records)
    each = ", ".join(f"{seed}: {number(v)}" for seed, v in zip(result.seeds, found.accuracy.per_seed, strict=True))
    chosen = cell.method.hyperparameters()
    told = [
        f"Accuracy of each seed: {each}.",
        f"{training.iters} iterations per task, batch {training.batch}, learning rate {cell.lr:g},"
        f" {cell.hidden} units a layer, {training.precision}.",
        f"{duration(machine_seconds(result.records))} of machine time, {moment(created[0])} to {moment(created[-1])}.",
    ]
    if any(chosen.values()):
        told.append(f"Hyperparameters: {json.dumps(chosen, ensure_ascii=False)}.")
    return "".join(f"<p><small>{escape(text)}</small></p>" for text in told)


def _again(found: Evidence, name: str) -> str:
    """All that determines the runs, and the command that trains them."""
    command = found.command
    told = f"<p><small>Made again by</small> <code>{escape(command)}</code></p>" if command else ""
    spec = json.dumps(found.cell.spec(), ensure_ascii=False, indent=2).removesuffix("\n}")
    spec += f',\n  "seeds": {json.dumps(found.result.seeds)}\n}}'  # on one line
    return f'{told}<details id="{name}-spec"><summary>Spec</summary><pre>{escape(spec)}</pre></details>'

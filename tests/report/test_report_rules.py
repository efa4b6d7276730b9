"""An experiment's rules appear once, below the table; results that follow other options name them."""

from dataclasses import replace

import pytest
from fake_sections import a_cell, a_result, a_table, stream

from threefold.experiments import Section
from threefold.report import FORMATS, html, markdown, render
from threefold.report.rules import unlike_the_published
from threefold.report.tables import result_tables

TEXT = "As in the code of 1999: distillation is averaged (reduction=mean)."
RULE = {"text": TEXT, "options": {"lwf": {"reduction": "mean"}, "dgr-distill": {"reduction": "mean"}}}


def rows(section: Section) -> list[str]:
    return [row for table in result_tables(section) for _, row in table.rows]


def ruled(*methods: str) -> Section:
    return replace(a_table(methods=methods, seeds=5), rules=[RULE])


def test_names_do_not_repeat_what_a_footnote_says() -> None:
    methods = ("none", "lwf:reduction=mean", "dgr-distill:reduction=mean", "icarl:temperature=2")
    assert rows(ruled(*methods)) == ["None", "LwF", "DGR+distill", "iCaRL (temperature=2)"]
    assert rows(a_table(methods=methods, seeds=5))[1] == "LwF (reduction=mean)", "without a rule the name says it"


def test_two_variants_in_one_table_are_told_apart() -> None:
    found = rows(ruled("lwf:reduction=mean", "lwf", "lwf:reduction=mean,temperature=3"))
    assert found == ["LwF (reduction=mean)", "LwF (reduction=sum)", "LwF (temperature=3)"]


@pytest.mark.parametrize("format", [each for each in FORMATS if each not in ("csv", "bibtex")])
def test_every_format_says_the_rule_once_for_a_table(format: str) -> None:
    said = render([ruled("none", "lwf:reduction=mean")], format, plain=True)
    said = " ".join(said.replace("\\_", "_").split())
    assert said.count("averaged (reduction=mean).") == 1
    assert "LwF (reduction" not in said


def test_csv_has_the_options_of_each_method() -> None:
    assert ",lwf:reduction=mean," in render([ruled("lwf:reduction=mean")], "csv")


def test_a_page_shows_the_rule_as_text() -> None:
    hostile = RULE | {"text": "<script>alert(1)</script>"}
    section = replace(ruled("none"), rules=[hostile])
    assert "<script>alert" not in html.render([section])
    assert "<script>" not in markdown.render([section])


@pytest.mark.parametrize(
    ("of", "scenario", "method", "where", "others"),
    [
        ("split-mnist", "class", "lwf", None, "lwf:reduction=mean"),
        ("split-mnist", "class", "lwf:reduction=mean", None, ""),
        ("split-mnist", "task", "lwf:reduction=mean", None, "lwf:replayed_for=every"),
        ("permuted-mnist", "task", "lwf", None, "lwf:reduction=mean, lwf:replayed_for=every"),
        ("permuted-mnist", "task", "dgr", None, ""),
        ("permuted-mnist", "task", "dgr:replayed_for=every", None, "dgr:replayed_for=one"),
        ("permuted-mnist", "task", "dgr+xdg:gate_on=input", "hidden", "dgr:replayed_for=every"),
        ("permuted-mnist", "task", "dgr:replayed_for=every+xdg:gate_on=input", "hidden", ""),
        ("split-mnist", "task", "xdg", None, "xdg:gate_on=input"),
        ("split-mnist", "class", "icarl", None, "icarl:temperature=2"),
        ("split-mnist", "class", "icarl:temperature=7", None, ""),  # not judged, so nothing to say
        ("split-mnist", "class", "ewc", None, ""),
    ],
)
def test_a_run_by_the_text_is_judged_and_told(
    of: str, scenario: str, method: str, where: str | None, others: str
) -> None:
    cell = a_cell(stream(of), scenario, method, where)
    assert unlike_the_published(cell) == others
    result = a_result(cell, 50.0, 1.0, 20)
    section = Section("run", "Mine", "table", [result])
    told = [text for text in result_tables(section)[0].explanations if "not trained by the rule" in text]
    assert len(told) == bool(others)
    assert all(f"takes {others}; judged" in text for text in told)
    assert (result.verdict is not None) == ("temperature=7" not in method), "by the text or by the rule: judged"

"""Verdicts, intervals and notes of result tables, from made-up records."""

import math

import pytest
from fake_sections import a_cell, a_result, a_table, stream, table_b1

from threefold.experiments import Cell, Result, Section
from threefold.report.formatting import number
from threefold.report.tables import TableCell, incomplete, remarks, result_tables, selection
from threefold.results import compare_all, verdict

SPLIT, PERMUTED = "split-mnist", "permuted-mnist"


def found(method: str, scenario: str, mean: float, seeds: int = 20, of: str = SPLIT, **settings: object) -> TableCell:
    """The evidence of a cell whose seeds scatter by a tenth of a point."""
    cell = a_cell(stream(of), scenario, method, **settings)
    section = Section("table", "A table", "table", [a_result(cell, mean, 0.1, seeds)])
    return result_tables(section)[0].cells[0]


@pytest.mark.parametrize(
    ("method", "mean", "seeds", "settings", "told", "sign"),
    [
        ("ewc", 98.6, 20, {}, "agrees", "✓"),
        ("ewc", 90.0, 20, {}, "differs", "✗"),
        ("ewc", 98.6, 4, {}, "too few seeds to tell", "?"),
        ("ewc", 98.6, 20, {"iters": 100}, "other length: not judged", ""),
        ("ewc", 98.6, 20, {"iters": 9000}, "other settings: not judged", ""),
        ("ewc:strength=3", 98.6, 20, {}, "other settings: not judged", ""),
        ("er", 98.6, 20, {}, "nothing published", ""),
    ],
)
def test_the_judgement_in_words(
    method: str, mean: float, seeds: int, settings: dict[str, object], told: str, sign: str
) -> None:
    evidence = found(method, "task", mean, seeds, **settings)
    assert (evidence.judgement, evidence.symbol) == (told, sign)


def test_the_verdict_is_that_of_the_one_rule() -> None:
    evidence = found("dgr", "class", 91.5)
    assert evidence.paper
    assert evidence.verdict == verdict(evidence.accuracy, evidence.paper)


def test_spread_over_seeds() -> None:
    evidence = found("ewc", "task", 98.0)
    values = evidence.accuracy.per_seed
    mean = sum(values) / len(values)
    assert evidence.spread == pytest.approx(math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1)))
    assert (evidence.lowest, evidence.highest) == (min(values), max(values))


@pytest.mark.parametrize(
    ("method", "scenario", "of", "mean", "told"),
    [
        ("ewc", "class", SPLIT, 20.0, "20.01. Its section 5: methods that only regularise fail when the task"),
        ("si", "domain", SPLIT, 65.3, "65.36. Its section 5: methods that only regularise struggle here"),
        ("none", "class", SPLIT, 19.9, "19.90. None is the lower bound"),
        ("lwf", "class", SPLIT, 23.8, "23.85. Its section 5: only methods that replay other data"),
        ("lwf", "task", PERMUTED, 69.8, "69.84. Its section 5: LwF does not work on permuted images"),
    ],
)
def test_a_low_number_that_was_published_is_explained(
    method: str, scenario: str, of: str, mean: float, told: str
) -> None:
    assert told in str(found(method, scenario, mean, of=of).explanation)


@pytest.mark.parametrize(
    ("method", "scenario", "mean"),
    [
        ("ewc", "task", 98.6),  # not low
        ("dgr", "class", 40.0),  # low, and published as high: a fault
        ("lwf", "domain", 50.0),  # published as low, but not as low as this: perhaps a fault
        ("er", "class", 40.0),  # nothing published, and nothing to be seen
    ],
)
def test_what_may_be_a_fault_is_not_explained_away(method: str, scenario: str, mean: float) -> None:
    assert found(method, scenario, mean).explanation is None


def test_a_network_that_knows_its_last_task_only_is_recognised_without_the_paper() -> None:
    evidence = found("ewc:strength=3", "class", 20.5, of="split-fashion")
    assert evidence.paper is None
    assert "At the end it knows the last task" in str(evidence.explanation)


def test_a_shortened_run_far_below_the_published_number_is_not_explained_by_it() -> None:
    assert found("lwf", "domain", 55.0, iters=10).explanation is None
    assert found("lwf", "domain", 65.0, iters=10).explanation is not None


def test_a_run_of_fewer_tasks_is_not_explained_by_the_published_number() -> None:
    shorter = type(stream())(stream().data, 2)
    cell = a_cell(shorter, "class", "none")
    assert cell.published()
    found = result_tables(Section("a", "A", "table", [a_result(cell, 39.0)]))[0].cells[0]
    assert "published" not in str(found.explanation or "")


def test_a_reason_that_several_methods_share_is_said_once() -> None:
    board = result_tables(a_table())[0]
    (shared,) = [told for told in board.explanations if "fail when the task must be inferred" in told]
    assert shared.startswith("Class-IL, EWC (20.01), Online EWC (19.96), SI (19.99): low, and published as low")


def test_the_board_has_the_papers_order() -> None:
    board = result_tables(a_table())[0]
    assert board.columns == ["Task-IL", "Domain-IL", "Class-IL"]
    assert [row for _, row in board.rows][:4] == ["None", "Offline", "XdG", "EWC"]
    assert board.rows[-1] == ("Replay + Exemplars", "iCaRL")
    assert set(board.why_not) == {
        ("XdG", "Domain-IL"),
        ("XdG", "Class-IL"),
        ("iCaRL", "Task-IL"),
        ("iCaRL", "Domain-IL"),
    }
    assert "task must be given" in board.why_not["XdG", "Class-IL"].reason


def test_table_b1_has_two_ways_to_use_the_task() -> None:
    board = result_tables(table_b1(5))[0]
    assert board.columns == ["Task-IL, task in output layer", "Task-IL, task in hidden layers"]
    assert [row for _, row in board.rows] == ["None", "EWC", "Online EWC", "SI", "LwF", "DGR", "DGR+distill"]
    hidden = board.at["None", board.columns[1]]
    assert hidden.paper
    assert hidden.paper.mean == 90.41


def test_the_same_method_trained_in_two_ways_keeps_both_rows() -> None:
    cells = [a_cell(stream(), "task", "ewc", iters=iters) for iters in (100, 200, None)]
    board = result_tables(Section("mine", "Mine", "table", [a_result(cell, 90.0) for cell in cells]))[0]
    assert len(board.at) == 3
    assert len({row for _, row in board.rows}) == 3


def test_pairs_of_a_column_are_compared_and_corrected() -> None:
    board = result_tables(a_table(methods=["none", "ewc", "dgr"], seeds=10))[0]
    column = board.significance[2]
    measured = {e.row: e.accuracy for e in board.cells if e.column == "Class-IL"}
    assert list(column.comparisons) == compare_all(measured)
    assert column.unlike("DGR") == ["None", "EWC"]
    assert column.sentence in (
        "Class-IL: 2 of 3 pairs differ significantly; all but None – EWC.",
        "Class-IL: all 3 pairs of methods differ significantly.",
    )


@pytest.mark.parametrize(
    ("methods", "seeds", "told"),
    [
        (["none"], 5, "one method only"),
        (["none", "dgr"], 1, "nothing is decided, fewer than five seeds in common."),
        (["none", "dgr"], 4, "nothing is decided, fewer than five seeds in common."),
        (["none", "dgr"], 5, "None and DGR differ significantly."),
    ],
)
def test_where_nothing_can_be_compared(methods: list[str], seeds: int, told: str) -> None:
    assert told in result_tables(a_table(methods=methods, seeds=seeds))[0].significance[0].sentence


def test_pairs_that_are_not_tested_are_told_with_the_reason() -> None:
    made = [("ewc", 5, []), ("si", 5, []), ("none", 4, []), ("lwf", 5, [2])]
    results = [a_result(a_cell(stream(), "task", m), 90.0, seeds=n, diverged=lost) for m, n, lost in made]
    sentence = result_tables(Section("mine", "Mine", "table", results))[0].significance[0].sentence
    assert sentence.endswith("(5 pairs not tested: fewer than five seeds in common or a seed diverged).")
    lost = result_tables(Section("mine", "Mine", "table", [results[0], results[3]]))[0].significance[0].sentence
    assert lost == "Task-IL: nothing is decided, a seed diverged."


def test_a_diverged_seed_is_named_and_leaves_no_mean() -> None:
    cell = a_cell(stream(), "task", "ewc")
    board = result_tables(Section("mine", "Mine", "table", [a_result(cell, 90.0, seeds=5, diverged=[2, 4])]))[0]
    assert board.explanations == [
        "EWC, Task-IL: 2 of 5 seeds diverged (2, 4), so there is no mean; give a smaller strength or learning rate."
    ]
    assert math.isnan(board.cells[0].lowest)
    assert board.cells[0].judgement == "differs"


@pytest.mark.parametrize(
    ("method", "optimizer", "told"),
    [
        ("ewc", "sgd:lr=0.05", "its strength 1e7 is the paper's, chosen for Adam: give a smaller strength or"),
        ("si+er:budget=10", "adamw", "its strength 50 is the paper's, chosen for Adam: give a smaller strength or"),
        ("ewc", "adam:lr=0.5", "give a smaller strength or"),
        ("ewc:strength=1e7", "sgd:lr=0.05", "give a smaller strength or"),
        ("none", "sgd:lr=0.05", "give a smaller"),
    ],
)
def test_who_diverged_is_told_what_to_change(method: str, optimizer: str, told: str) -> None:
    cell = a_cell(stream(), "task", method, optimizer=optimizer)
    for each in (cell, Cell.of_description(cell.described())):
        found = TableCell(a_result(each, 50.0, seeds=2, diverged=[1]), "", "")
        assert found.diverged == f"1 of 2 seeds diverged (1), so there is no mean; {told} learning rate"


def test_how_hyperparameters_were_selected_is_said() -> None:
    results: list[Result] = []
    assert "test sets of all tasks" in selection(Section("a", "A", "table", results))
    assert selection(Section("a", "A", "table", results, selected="first task")) == "selected: first task."


def test_what_is_missing_is_counted_by_stream_and_method() -> None:
    split, permuted = stream(), stream("permuted-mnist")
    lacking = {
        a_cell(split, "task", "er:use=both,budget=10"): 3,
        a_cell(split, "class", "er:use=both,budget=20"): 4,
        a_cell(permuted, "task", "ewc:strength=2"): 5,
    }
    section = Section("c", "C", "budgets", [], left=20, lacking=lacking)
    told = "split-mnist: stored data in both 7; permuted-mnist: EWC 5; on data held out of the first tasks: 8"
    assert incomplete(section) == f"20 runs still to be trained ({told})."
    table = Section("t", "T", "table", [], left=7, lacking={next(iter(lacking)): 7})
    assert incomplete(table) == "7 runs still to be trained (split-mnist: ER 7)."
    assert incomplete(Section("c", "C", "budgets", [], left=1)) == "1 run still to be trained."
    assert incomplete(Section("c", "C", "budgets", [])) == ""


def test_a_remark_is_said_once_for_all_values_of_a_grid() -> None:
    results = [a_result(a_cell(stream(), "task", f"xdg:share={share}"), 90.0, seeds=1) for share in (0.1, 0.5)]
    notes = {"xdg:share=0.1": "A remark.", "xdg:share=0.5": "A remark.", "lwf:reduction=mean": "Another."}
    section = Section("g", "G", "grids", results, notes=notes)
    assert remarks(section) == ["XdG: A remark.", "lwf:reduction=mean: Another."]


@pytest.mark.parametrize(
    ("value", "digits", "said"),
    [
        (-1.5, 2, "−1.50"),
        (-0.004, 2, "0.00"),
        (0.004, 2, "0.00"),
        (-0.006, 2, "−0.01"),
        (-0.4, 0, "0"),
        (math.nan, 2, "–"),
    ],
)
def test_numbers_have_a_true_minus_and_none_before_zero(value: float, digits: int, said: str) -> None:
    assert number(value, digits) == said

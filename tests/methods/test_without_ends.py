"""Streams without task boundaries: interrupted runs, and methods that are refused there."""

import pytest
import torch
from every_method import METHODS, Leaving, left
from tiny_cohorts import SCENARIOS, Killed, killed_in, same_bits, same_measured, tiny_data, watched
from tiny_stack import SEEDS

from covering import covering, rest_in_full
from threefold.engine import Checkpoint, Evaluation
from threefold.methods import parse
from threefold.methods.learner import Setting
from threefold.networks import MLPNetwork
from threefold.scenarios import Outputs, find
from threefold.streams import Split
from threefold.streams.boundaries import find_boundaries

BOUNDARIES = ["blurred:width=2,every=4", "none:every=3"]  # the clock strikes between the tests, which are every 5 steps
RESERVOIR = [f"{name}:budget=30,selection=reservoir" for name in ("er", "a-gem", "icarl")]
ALL = [*METHODS, *RESERVOIR]
TOGETHER = ["si:strength=2+xdg:share=0.5", "lwf+er:budget=30,selection=reservoir"]


def refusal(method, scenario, boundaries="blurred:width=2"):
    outputs = Outputs(find(scenario), 3, 2)
    setting = Setting(outputs, (1, 4, 4), 12, MLPNetwork(width=8), tasks_end=find_boundaries(boundaries).clock is None)
    return parse(method).refuse(setting)


CASES = [
    (boundaries, scenario, method)
    for boundaries in BOUNDARIES
    for scenario in ("domain", "class")
    for method in [*ALL, *TOGETHER]
    if refusal(method, scenario) is None
] + [(BOUNDARIES[0], "task", method) for method in TOGETHER]


def trained(boundaries, scenario, method, **also):
    stream = Split(tiny_data(classes=7, dtype=torch.float64), classes=[2, 3, 2])
    stream.boundaries = find_boundaries(boundaries)
    run = {"method": method, "iters": 5, "batch": 12, "hidden": 10, "evaluation": Evaluation(every=2, samples=None)}
    return watched(stream, scenario, SEEDS, **run | also)


@pytest.mark.parametrize(("boundaries", "scenario", "method"), rest_in_full(CASES, covering(CASES, 0)))
def test_killed_between_two_tests_and_resumed_is_undisturbed(boundaries, scenario, method, tmp_path):
    """After the first test and after the second: what came before is not trained again, and every bit is the same."""
    seen = trained(boundaries, scenario, method, checkpoint=Leaving(tmp_path / "cohort.pt"))
    for finished in (1, 2):
        path = tmp_path / str(finished) / "cohort.pt"  # a checkpoint is known by its name
        path.parent.mkdir()
        path.write_bytes(left(tmp_path, finished).read_bytes())
        again = trained(boundaries, scenario, method, checkpoint=path)
        assert len(again.states) == 3 - finished
        assert same_measured(again.measured, seen.measured)
        assert same_bits(again.states[-1], seen.states[-1])
        assert again.measured.points == seen.measured.points
        assert same_bits(again.measured.curves, seen.measured.curves)


@pytest.mark.parametrize("epochs", [None, 1])
@pytest.mark.parametrize("method", ["lwf", "er:budget=30,selection=reservoir"])
def test_killed_at_any_step_it_goes_on_from_the_last_test(method, epochs, tmp_path):
    """Also in one pass, where what is left of each task depends on all that came before."""
    how = {"epochs": epochs} if epochs else {"iters": 20}
    whole = trained(BOUNDARIES[0], "class", method, **how)
    path = tmp_path / "killed.pt"
    for finished in (1, 2):
        with pytest.raises(Killed):
            trained(BOUNDARIES[0], "class", method, checkpoint=Checkpoint(path), report=killed_in(finished), **how)
    again = trained(BOUNDARIES[0], "class", method, checkpoint=Checkpoint(path), **how)
    assert len(again.states) == 1
    assert same_measured(again.measured, whole.measured)
    assert same_bits(again.states[-1], whole.states[-1])
    assert same_bits(again.measured.curves, whole.measured.curves)


NEED_ENDS = {
    "ewc",
    "online-ewc",
    "mas",
    "fromp",
    "dgr",
    "dgr-distill",
    "bi-r",
    "separate",
    "gem",
    "generative-classifier",
}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("method", ALL)
def test_a_method_runs_there_or_a_sentence_says_why_not(method, scenario):
    refused = refusal(method, scenario)
    needs_ends = any(part.name in NEED_ENDS for part in parse(method).parts)
    stores = "budget" in method and "reservoir" not in method and not method.startswith("der")
    elsewhere = refusal(method, scenario, "sharp") is not None
    assert (refused is not None) == (needs_ends or stores or elsewhere)
    if refused:
        assert refused.endswith(".")
        assert "\n" not in refused


def test_no_part_sees_the_data_of_a_task_that_never_ends():
    """A user's part may ask for them when the clock strikes."""
    from threefold.errors import ThreefoldError
    from threefold.methods import Part

    class Asks(Part):
        name = "asks"

        def consolidate(self, stack, memory, task):
            return {"samples": stack.own_samples()[0]}

    with pytest.raises(ThreefoldError, match="no task is finished, so none has data to look at"):
        trained(BOUNDARIES[0], "class", Asks())


def test_gates_are_drawn_unit_by_unit_there():
    """Each with the chance that is given, so their number differs; where tasks end it is the same for each."""
    units = 400
    for boundaries, fixed in (("blurred:width=2", False), ("sharp", True)):
        ends = find_boundaries(boundaries).clock is None
        setting = Setting(Outputs(find("task"), 5, 2), (1, 4, 4), 12, MLPNetwork(width=units), tasks_end=ends)
        (part,) = parse("xdg:share=0.45").parts
        gated = torch.stack([(table == 0).sum(1) for table in part.start(setting, 1, {})["gates"]]).flatten()
        assert gated.numel() == 10
        if fixed:
            assert set(gated.tolist()) == {180}
        else:
            deviation = (units * 0.45 * 0.55) ** 0.5
            assert len(set(gated.tolist())) > 3
            assert ((gated - 180).abs() < 4 * deviation).all()
            assert abs(float(gated.double().mean()) - 180) < 4 * deviation / 10**0.5

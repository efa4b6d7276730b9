"""A run's key covers the code that determines it, wherever that was written."""

import functools
import re
import sys
from dataclasses import replace
from textwrap import dedent

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_cells import Heard

import threefold
from threefold import Split, ThreefoldError
from threefold.experiments import Asked, Cell, Request, Settings, run_request, train_requests
from threefold.fingerprint import NotCovered, code_of
from threefold.methods import EWC, Method
from threefold.scenarios import SCENARIOS
from threefold.streams import SHARP, OwnStream, Task

SHORT = {"iters": 3, "hidden": 4, "batch": 8, "device": "cpu"}
METHOD = """
from threefold import Part, hyper

FACTOR = {factor}

def scaled(x):
    return x * {helper}

class Base(Part):
    name = "mine"
    strength: float = hyper("weight", 1.0)

    def penalty(self, learner):
        return scaled(FACTOR) * self.strength * sum((p**2).sum() for p in learner.params.values())

class Mine(Base):
    def keep(self, stack, memory):
        return super().keep(stack, memory)
"""


def defined(text, name="Mine", module="__main__"):
    """A class as a notebook defines it: there is no file."""
    scope = {"__name__": module}
    exec(compile(dedent(text), "<cell>", "exec"), scope)
    return scope[name]


def method(factor=1, helper=2, before=""):
    return defined(before + METHOD.format(factor=factor, helper=helper))


@pytest.fixture(scope="module")
def data():
    source = torch.Generator().manual_seed(1)
    labels = torch.arange(240) % 4
    images = (torch.rand(4, 5, 5, generator=source)[labels] + 0.2 * torch.randn(240, 5, 5, generator=source)).clamp(
        0, 1
    )
    return threefold.Dataset.from_arrays(images[:160], labels[:160], images[160:], labels[160:], name="dots")


def trained(stream, method, store):
    return threefold.run(stream, scenario="task", method=method, seeds=2, store=store, **SHORT)


class Sharper(type(SHARP)):
    """Boundaries of a user's: what they compute no key would tell."""


class Reverse(Split):
    """The tasks of Split in reverse order."""

    def sequence(self, seed):
        return super().sequence(seed)[::-1]


def test_a_subclass_of_a_stream_has_a_key_of_its_own(data, tmp_path):
    store = tmp_path / "runs.db"
    plain, reverse = trained(Split(data, 2), "none", store), trained(Reverse(data, 2), "none", store)
    again = trained(Reverse(data, 2), "none", None)
    assert (reverse.matrix == again.matrix).all()
    assert not (reverse.matrix == plain.matrix).all()
    assert {r.key for r in plain.records}.isdisjoint(r.key for r in reverse.records)


def test_a_stream_with_a_function_of_its_own_has_a_key_of_its_own(data):
    keys = []
    for first in (0, 1):
        stream = Split(data, 2)
        keys.append(Cell.of(stream, SCENARIOS["task"], Method(), Settings.checked(device="cpu")).spec())
        stream.sequence = lambda seed, stream=stream, first=first: Split.sequence(stream, seed)[first:]
        keys.append(Cell.of(stream, SCENARIOS["task"], Method(), Settings.checked(device="cpu")).spec())
    assert keys[0] == keys[2]
    assert all(keys[one] != keys[other] for one, other in [(0, 1), (0, 3), (1, 3)])


class InSlots(Split):
    """What decides about its tasks is not in its `__dict__`."""

    __slots__ = ("__hidden", "shift")

    def __init__(self, data, shift=0, hidden=0):
        super().__init__(data, 2)
        self.shift, self.__hidden = shift, hidden

    def sequence(self, seed):
        return super().sequence(seed + self.shift + self.__hidden)


def spec_of(stream):
    return Cell.of(stream, SCENARIOS["task"], Method(), Settings.checked(device="cpu")).spec()


def test_what_a_stream_holds_in_slots_counts(data):
    specs = [spec_of(InSlots(data, *given)) for given in ((), (5,), (0, 5), (5,))]
    assert specs[1] == specs[3]
    assert all(specs[one] != specs[other] for one, other in [(0, 1), (0, 2), (1, 2)])


def by_year(data, seed):
    """A task for each year."""
    train, test = data.columns["year"]
    years = [[torch.nonzero(each == year).flatten() for each in (train, test)] for year in (0, 1)]
    return [Task((0, 1, 2, 3), *each) for each in years]


def test_the_columns_that_a_users_stream_may_look_at_count(data):
    specs = []
    for shift in (0, 1, 0):
        year = (torch.arange(160) + shift) // 4 % 2, torch.arange(80) // 4 % 2
        specs.append(spec_of(OwnStream(by_year, replace(data, columns={"year": year}))))
    assert specs[0] == specs[2]
    assert specs[0] != specs[1]


def test_a_stream_that_draws_anew_each_time_is_refused(data):
    """Its tasks are not determined by the seed: what is resumed would train on others than what began."""

    def drawn(data, seed):
        order = torch.randperm(160)
        return [Task((0, 1, 2, 3), half, torch.arange(80)) for half in order.split(80)]

    with pytest.raises(ThreefoldError, match="drawn must give the same tasks for seed 1 each time, and does not"):
        spec_of(OwnStream(drawn, data))


@pytest.mark.parametrize(("name", "value"), [("boundaries", "none"), ("boundaries", Sharper()), ("options", {"a": 1})])
def test_what_every_stream_has_stays_what_it_is(data, tmp_path, name, value):
    stream = Split(data, 2)
    setattr(stream, name, value)
    with pytest.raises(ThreefoldError, match=rf"{name} .*must be"):
        trained(stream, "none", tmp_path / "runs.db")
    assert list(tmp_path.iterdir()) == []


def test_a_method_that_was_edited_in_a_notebook_is_trained_again(data, tmp_path):
    store = tmp_path / "runs.db"
    first = trained(Split(data, 2), method(factor=0)(), store)
    edited = trained(Split(data, 2), method(factor=1000)(), store)
    assert {r.key for r in first.records}.isdisjoint(r.key for r in edited.records)
    assert (edited.matrix == trained(Split(data, 2), method(factor=1000)(), None).matrix).all()


def test_the_same_cell_run_again_is_the_same_method(data, tmp_path):
    store = tmp_path / "runs.db"
    first = trained(Split(data, 2), method()(), store)
    again = trained(Split(data, 2), method(before="# a remark\n\n")(), store)
    assert [r.key for r in first.records] == [r.key for r in again.records]
    assert [r.created for r in first.records] == [r.created for r in again.records]


@pytest.mark.parametrize("change", [{"factor": 2}, {"helper": 3}], ids=["a value", "a function"])
def test_what_the_code_refers_to_counts(change):
    assert code_of(method()) == code_of(method())
    assert code_of(method()) != code_of(method(**change))


REACHED = {
    "a lambda": ("f = lambda: {n}", "f()"),
    "a partial": ("def g(k): return k * {n}\nf = functools.partial(g, k=1)", "f()"),
    "a cached function": ("@functools.cache\ndef f(): return {n}", "f()"),
    "a function's attribute": ("def f(): return f.n\nf.n = {n}", "f()"),
    "a factory": ("f = collections.defaultdict(lambda: {n})", "f[0]"),
    "a list of a kind": ("class L(list):\n    def f(self): return {n}\nf = L()", "f.f()"),
    "a number of a kind": ("class F(float):\n    def f(self): return {n}\nf = F()", "f.f()"),
    "a named tuple": ("class N(typing.NamedTuple):\n    a: int = 1\n    def f(self): return {n}\nf = N()", "f.f()"),
    "a class that a library made": ("f = dataclasses.make_dataclass('C', [('n', int, {n})])", "f().n"),
    "a metaclass": ("class M(type):\n    def f(cls): return {n}\nclass C(metaclass=M): pass", "C.f()"),
    "a tensor": ("class T(torch.Tensor):\n    def f(self): return {n}\nf = torch.ones(2).as_subclass(T)", "f.f()"),
}


@pytest.mark.parametrize("what", REACHED)
def test_whatever_the_code_reaches_counts(what):
    before, use = REACHED[what]

    def code(number):
        text = f"import collections, dataclasses, functools, torch, typing\nfrom threefold import Part\n{before}\n"
        text += f"class Mine(Part):\n    name = 'mine'\n    def penalty(self, learner): return {use}\n"
        return code_of(defined(text.replace("{n}", str(number))))

    assert code(1) == code(1) != code(2)


def test_a_method_may_have_any_name():
    text = "from threefold import Part\nclass Mine(Part):\n    name = 'mine'\n    def model_loss(self, x): return {}\n"
    assert code_of(defined(text.format(1))) != code_of(defined(text.format(2)))


def test_closures_and_defaults_count():
    text = """
    from threefold import Split
    def made(offset):
        class Mine(Split):
            def sequence(self, seed, more={default}):
                return super().sequence(seed + offset + more)
        return Mine
    Mine = made({offset})
    """
    sums = {code_of(defined(text.format(offset=o, default=d))) for o, d in [(0, 1), (1, 0), (0, 0), (0, 0)]}
    assert len(sums) == 3


def test_what_an_instance_holds_counts(data):
    class Rotated(Split):
        def __init__(self, data, by):
            super().__init__(data, 2)
            self.by = by

        def sequence(self, seed):
            tasks = super().sequence(seed)
            return tasks[self.by :] + tasks[: self.by]

    def key(by):
        return Cell.of(Rotated(data, by), SCENARIOS["task"], Method(), Settings.checked(device="cpu")).spec()

    assert key(0) == key(0)
    assert key(0) != key(1)


IMPORTED = {
    "a module": ("import my_helpers, numpy", "return my_helpers.weight(numpy.float64(1))"),
    "a function of it": ("from my_helpers import weight", "return weight(1)"),
    "a module of a package": ("import my_package.helpers", "return my_package.helpers.weight(1)"),
    "of a folder": ("import my_folder.helpers", "return my_folder.helpers.weight(1)"),
    "when it is called": ("", "from my_package import helpers; return helpers.weight(1)"),
    "by getattr": ("import my_helpers", "return getattr(my_helpers, 'weight')(1)"),
    "in a dictionary": (
        "import my_helpers\nall_of_them = {'mine': my_helpers}",
        "return all_of_them['mine'].weight(1)",
    ),
    "with the name of one of Python's": ("import colorsys", "return colorsys.weight(1)"),
}


@pytest.mark.parametrize("way", IMPORTED)
def test_a_helper_module_counts_however_it_is_imported(way, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before, body = IMPORTED[way]
    files = ["my_helpers.py", "my_package/__init__.py", "my_package/helpers.py", "my_folder/helpers.py", "colorsys.py"]

    def forget():
        for name in [name for name in sys.modules if name.startswith(("my_helpers", "my_pack", "my_fold", "colorsys"))]:
            del sys.modules[name]

    def code(factor, other=0):
        forget()
        for file in files:
            (tmp_path / file).parent.mkdir(exist_ok=True)
            (tmp_path / file).write_text(f"def weight(x): return {factor} * x\n\ndef other(): return {other}\n")
        text = f"from threefold import Part\n{before}\nclass Mine(Part):\n    name = 'mine'\n"
        return code_of(defined(f"{text}    def penalty(self, learner): {body}\n"))

    assert code(1) == code(1) != code(2)
    assert code(1, other=5) == code(1), "what the code does not use"
    forget()


def test_a_file_that_was_edited_after_it_was_imported_is_what_was_imported(tmp_path, monkeypatch):
    """The text on the disk is not what runs."""
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "edited_method.py"
    file.write_text(METHOD.format(factor=1, helper=2))
    import edited_method

    before = code_of(edited_method.Mine)
    file.write_text(METHOD.format(factor=1, helper=50))
    assert code_of(edited_method.Mine) == before


def test_threefolds_own_code_has_a_revision_instead(data):
    assert code_of(EWC) is None
    assert code_of(Split) is None
    cell = Cell.of(Split(data, 2), SCENARIOS["task"], Method(EWC(strength=1)), Settings.checked(device="cpu"))
    assert cell.spec()["numerics"] == threefold.version.NUMERICS
    assert "code" not in cell.spec()["method"] | cell.spec()["stream"]


@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.tuples(inner, inner)
    )
)
def test_equal_values_have_equal_sums(value):
    class Mine(Split):
        pass

    import copy

    assert code_of(Mine, value) == code_of(Mine, copy.deepcopy(value))
    assert code_of(Mine, value) != code_of(Mine, [value])


def test_sets_cycles_partials_and_tensors_have_sums():
    class Mine(Split):
        pass

    knot = []
    knot.append(knot)
    values = [{"a", "b"}, knot, functools.partial(max, 1), functools.partial(max, 2), torch.zeros(2), torch.ones(2)]
    sums = [code_of(Mine, value) for value in values]
    assert len(set(sums)) == len(values)
    assert code_of(Mine, {"b", "a"}) == sums[0]


# what no key can cover


GUARDED = """
import threading
from threefold import Part

GUARD = threading.Lock()

class Guarded(Part):
    name = "guarded"

    def penalty(self, learner):
        with GUARD:
            return {factor} * sum((p**2).sum() for p in learner.params.values())
"""


def guarded(factor):
    return defined(GUARDED.format(factor=factor), "Guarded")()


def test_what_has_no_sum_is_named():
    with pytest.raises(NotCovered, match="lock"):
        code_of(type(guarded(1)))


@pytest.mark.parametrize(
    "found", ["eval('1')", "globals()['W']", "importlib.import_module('mine')", "__import__('mine')"]
)
def test_what_code_finds_by_a_text_cannot_be_known(found):
    text = "import importlib\nfrom threefold import Part\nW = 1\nclass Mine(Part):\n    name = 'mine'\n"
    with pytest.raises(NotCovered, match=r"what \w+ finds"):
        code_of(defined(f"{text}    def penalty(self, learner): return {found}\n"))


def test_what_no_key_covers_is_trained_and_never_stored(data, tmp_path):
    """Beside it what has a key is stored and remembered as ever."""
    stream, store, heard = Split(data, 2), tmp_path / "runs.db", Heard()
    request = run_request(stream, ["task"], [guarded(1), "none"], 2, settings=SHORT)
    with pytest.warns(UserWarning, match="Guarded depends on"):
        alone = trained(stream, guarded(1), None)
    ((result, none),) = train_requests([request], store, heard)
    assert (result.matrix == alone.matrix).all()
    assert len(heard.warnings) == 1
    assert re.fullmatch(
        r"Guarded depends on a lock \(.*\), which no key can cover, so .* nor looked up\.", *heard.warnings
    )
    with threefold.Store(store, readonly=True) as opened:
        assert [record.key for record in opened.all()] == [record.key for record in none.records]
        (remembered,) = opened.experiments().values()
        assert [cell["method"] for cell in remembered["cells"]] == ["none"]
    assert not (tmp_path / "runs.db.checkpoints").exists()


def test_two_that_no_key_covers_are_never_taken_for_each_other(data, tmp_path):
    """Neither in one request, nor in two, though name and hyperparameters are the same."""
    stream, methods = Split(data, 2), [Method(guarded(factor)) for factor in (0, 1000)]
    cells = [Cell.of(stream, SCENARIOS["task"], method, Settings(**SHORT)) for method in methods]
    asked = [Asked(cell, (1, 2)) for cell in cells]
    (first, second), (again,) = train_requests(
        [Request("both", "both", asked), Request("again", "again", asked[:1])], tmp_path / "runs.db"
    )
    assert not (first.matrix == second.matrix).all()
    assert (first.matrix == again.matrix).all()
    with pytest.warns(UserWarning, match="no key can cover"):
        assert (second.matrix == trained(stream, guarded(1000), tmp_path / "runs.db").matrix).all()
    with threefold.Store(tmp_path / "runs.db", readonly=True) as opened:
        assert (list(opened.all()), opened.experiments()) == ([], {})

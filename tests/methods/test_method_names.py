"""Methods as they are written, the paper's hyperparameters, and pairs that cannot work."""

import pytest
from tiny_stack import SCENARIOS, STREAMS, setting_of

import threefold
from threefold.errors import ThreefoldError
from threefold.methods import (
    AGEM,
    DGR,
    ER,
    EWC,
    METHODS,
    SI,
    DGRDistill,
    ICaRL,
    LwF,
    Method,
    Offline,
    OnlineEWC,
    Part,
    XdG,
    build,
    parse,
    register,
    resolve,
)

# names

NAMES = [
    *("none", "offline", "xdg", "separate", "ewc", "online-ewc", "si", "mas", "fromp", "lwf"),
    *("dgr", "dgr-distill", "bi-r", "icarl"),
    *("er", "a-gem", "gem", "der", "der-pp", "generative-classifier"),
]


def test_the_methods_are_known_by_these_names():
    assert list(METHODS) == NAMES
    for name in NAMES:
        assert parse(name).name == name
        assert METHODS[name].meaning.endswith(".")


WRITTEN = {
    "ewc:strength=1e+7+xdg:share=0.5": [EWC(strength=1e7), XdG(share=0.5)],
    "ewc:strength=1e7": [EWC(strength=1e7)],
    "xdg:share=5e-1+ewc:strength=+3": [XdG(share=0.5), EWC(strength=3)],
    "online-ewc:strength=5,decay=0.5": [OnlineEWC(strength=5, decay=0.5)],
    "ewc:labels=expected,fisher_samples=20": [EWC(labels="expected", fisher_samples=20)],
    "si:damping=1E-2": [SI(damping=0.01)],
    "lwf:temperature=3,reduction=mean": [LwF(temperature=3, reduction="mean")],
    "dgr+xdg": [DGR(), XdG()],
    "dgr-distill:reduction=mean+a-gem:budget=7": [DGRDistill(reduction="mean"), AGEM(budget=7)],
    "icarl:budget=20,unit_length=false,temperature=2": [ICaRL(budget=20, unit_length=False, temperature=2)],
    "er:use=both,selection=random": [ER(use="both", selection="random")],
    "xdg:gate_on=input": [XdG(gate_on="input")],
    "offline": [Offline()],
    "none": [],
    "none+ewc": [EWC()],
}


@pytest.mark.parametrize(("text", "parts"), WRITTEN.items(), ids=WRITTEN)
def test_what_is_written_is_what_is_built(text, parts):
    assert list(parse(text).parts) == parts


def test_sums_of_parts_are_methods():
    both = EWC(strength=2) + XdG(share=0.5)
    assert isinstance(both, Method)
    assert both.name == "ewc+xdg"
    assert list(both.parts) == list(parse("ewc:strength=2+xdg:share=0.5").parts)
    assert [part.name for part in (both + LwF()).parts] == ["ewc", "xdg", "lwf"]
    assert [part.name for part in (SI() + both).parts] == ["si", "ewc", "xdg"]
    assert both.hyperparameters()["ewc"]["strength"] == 2


BAD = {
    "ecw": ["method 'ecw' is not known", "did you mean 'ewc'?"],
    "online_ewc": ["method 'online_ewc'", "did you mean 'online-ewc'?"],
    "zzzz": ["method 'zzzz'", "known:", "a-gem"],
    "": ["method ''"],
    "ewc+": ["method 'ewc+'"],
    "+ewc": ["method ''"],
    "ewc + xdg": ["method 'ewc + xdg'"],
    "ewc+ecw": ["method 'ecw'", "'ewc'?"],
    "ewc:strenght=1": ["hyperparameter of ewc 'strenght'", "did you mean 'strength'?"],
    "ewc:qqqq=1": ["'qqqq'", "known: fisher_samples, labels, strength"],
    "ewc:decay=0.5": ["hyperparameter of ewc 'decay'"],
    "dgr:temperature=2": ["'temperature'"],
    "none:x=1": ["'none' has no hyperparameters", "'x'"],
    "offline:x=1": ["'offline' has no hyperparameters", "'x'"],
    "ewc:": ["'ewc:' has nothing after the colon", "use ewc or ewc:key=value"],
    "ewc:strength": ["'strength'", "key=value"],
    "ewc:strength=": ["strength of ewc is ''"],
    "ewc:strength=strong": ["strength of ewc is 'strong'", "number"],
    "ewc:strength=-1": ["strength of ewc is '-1'", "greater than or equal to 0"],
    "ewc:strength=inf": ["strength of ewc is 'inf'", "finite"],
    "ewc:strength=nan": ["strength of ewc is 'nan'", "finite"],
    "ewc:strength=1e999": ["strength of ewc is '1e999'", "finite"],
    "ewc:labels=best": ["labels of ewc is 'best'", "predicted"],
    "ewc:fisher_samples=0": ["fisher_samples of ewc is '0'"],
    "ewc:fisher_samples=1.5": ["fisher_samples of ewc is '1.5'", "integer"],
    "online-ewc:decay=0": ["decay of online-ewc is '0'", "greater than 0"],
    "online-ewc:decay=1.1": ["decay of online-ewc is '1.1'", "less than or equal to 1"],
    "si:damping=0": ["damping of si is '0'"],
    "xdg:share=1": ["share of xdg is '1'", "less than 1"],
    "xdg:gate_on=bias": ["gate_on of xdg is 'bias'", "activation"],
    "lwf:temperature=0": ["temperature of lwf is '0'"],
    "lwf:reduction=max": ["reduction of lwf is 'max'", "sum"],
    "er:budget=0": ["budget of er is '0'"],
    "er:budget=2.5": ["budget of er is '2.5'", "integer"],
    "er:use=testing": ["use of er is 'testing'", "training"],
    "icarl:selection=best": ["selection of icarl is 'best'", "herding"],
    "ewc+ewc": ["ewc+ewc", "names a part twice", "each part may be in it once"],
    "ewc:strength=1+xdg+ewc:strength=2": ["names a part twice"],
    "ewc:strength=1,strength=2": ["strength"],
}


@pytest.mark.parametrize(("text", "named"), BAD.items(), ids=[text or "empty" for text in BAD])
def test_what_cannot_be_read_gets_one_sentence(text, named):
    with pytest.raises(ThreefoldError) as info:
        parse(text)
    for piece in named:
        assert piece in str(info.value)
    assert "\n" not in str(info.value)


class Taken(Part):
    name = "ewc"


class Unwritable(Part):
    name = "my method:x"


class Nameless(Part):
    pass


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (Taken, "name of Taken is 'ewc', which threefold has already"),
        (Unwritable, "name of Unwritable must be a letter"),
        (Nameless, "name of Nameless must be a letter"),
        (3, "method must be a class that inherits from Part, got 3"),
    ],
)
def test_what_cannot_be_registered_gets_one_sentence(part, named):
    before = dict(METHODS)
    with pytest.raises(ThreefoldError) as info:
        register(part, "Replay", "Mine")
    assert named in str(info.value)
    assert before == METHODS


def test_a_class_of_ones_own_may_be_registered_again():
    first, again = (type("Mine", (Part,), {"name": "mine", "__annotations__": {}}) for _ in range(2))
    try:
        for each in (first, again):
            register(each, "Replay", "Mine")
        assert METHODS["mine"].part is again
    finally:
        METHODS.pop("mine", None)


def test_build_takes_values_of_their_own_type():
    assert build("ewc", {"strength": 3, "fisher_samples": None}) == EWC(strength=3)
    assert build("none", {}) is None
    with pytest.raises(ThreefoldError, match="did you mean 'ewc'"):
        build("ecw", {})
    with pytest.raises(ThreefoldError, match="strength of ewc"):
        build("ewc", {"strength": "strong"})


def test_numbers_may_differ_within_a_cohort_and_what_changes_code_may_not():
    numbers = {name: entry.part().per_replica() for name, entry in METHODS.items() if entry.part}
    assert numbers == {
        "offline": [],
        "xdg": ["share"],
        "separate": [],
        "ewc": ["strength"],
        "online-ewc": ["strength", "decay"],
        "fromp": ["strength", "prior", "clip"],
        "si": ["strength", "damping"],
        "mas": ["strength"],
        "lwf": ["temperature"],
        "dgr": [],
        "dgr-distill": ["temperature"],
        "bi-r": ["gating", "temperature"],
        "icarl": ["budget", "temperature"],
        "er": ["budget"],
        "a-gem": ["budget", "damping"],
        "gem": ["margin"],
        "der": ["alpha"],
        "der-pp": ["alpha", "beta"],
        "generative-classifier": ["lr"],
    }


def test_every_hyperparameter_has_a_meaning():
    for entry in METHODS.values():
        for field in entry.part.model_fields.values() if entry.part else ():
            assert field.description


# the paper's values, copied by hand (section 4.2, appendix D)

COLUMNS = [(stream, scenario) for stream in ("split", "permuted") for scenario in SCENARIOS]
TABLE = {
    ("xdg", "share"): [0.95, None, None, 0.55, None, None],
    ("ewc", "strength"): [1e7, 1e6, 1e8, 500, 500, 1],
    ("online-ewc", "strength"): [1e8, 1e8, 1e9, 500, 1000, 5],
    ("online-ewc", "decay"): [0.8, 0.7, 0.8, 0.8, 0.9, 1],
    ("si", "strength"): [50, 500, 0.5, 5, 5, 0.1],
}
FILLED = [
    (name, key, *where, value)
    for (name, key), row in TABLE.items()
    for where, value in zip(COLUMNS, row, strict=True)
    if value is not None
]


@pytest.mark.parametrize(("name", "key", "stream", "scenario", "value"), FILLED)
def test_what_is_not_given_is_the_papers(name, key, stream, scenario, value):
    (part,) = resolve(parse(name), stream, scenario).parts
    assert getattr(part, key) == value
    (part,) = resolve(parse(f"{name}:{key}=0.25"), stream, scenario).parts
    assert getattr(part, key) == 0.25  # overridable


def test_the_papers_constants_are_the_defaults():
    assert LwF().temperature == DGRDistill().temperature == 2
    assert LwF().reduction == DGRDistill().reduction == "sum"  # the equation as printed
    assert SI().damping == 0.1
    assert ICaRL().budget == ER().budget == 2000
    assert ICaRL().unit_length is True
    assert (ICaRL().selection, ICaRL().temperature) == ("herding", 1)
    assert (EWC().labels, EWC().fisher_samples) == ("predicted", None)
    assert XdG().gate_on == "activation"
    assert (ER().use, ER().selection) == ("training", "herding")


def test_one_given_number_leaves_the_others_the_papers():
    (part,) = resolve(parse("online-ewc:decay=0.3"), "split", "domain").parts
    assert (part.strength, part.decay) == (1e8, 0.3)
    both = resolve(parse("ewc+xdg:share=0.2"), "permuted", "task")
    assert [both.parts[0].strength, both.parts[1].share] == [500, 0.2]
    assert both.name == "ewc+xdg"


def test_resolving_keeps_what_needs_no_value():
    for name in [name for name in NAMES if (name, "strength") not in TABLE and name not in ("xdg", "icarl")]:
        for stream, scenario in COLUMNS:
            assert list(resolve(parse(name), stream, scenario).parts) == list(parse(name).parts)
    (part,) = resolve(parse("ewc:fisher_samples=9"), "split", "task").parts
    assert part.fisher_samples == 9
    assert resolve(parse("ewc"), "split", "task").parts[0].fisher_samples is None


@pytest.mark.parametrize(("name", "key"), [("ewc", "strength"), ("si", "strength"), ("online-ewc", "decay")])
def test_where_the_paper_has_no_value_one_must_be_given(name, key):
    with pytest.raises(ThreefoldError, match=f"{name}:{key}=NUMBER"):
        resolve(parse(f"{name}:strength=1" if key == "decay" else name), "rotated", "task")
    (part,) = resolve(parse(f"{name}:strength=1" + (",decay=1" if key == "decay" else "")), "rotated", "task").parts
    assert part.strength == 1


# pairs that cannot work

DASHES = {
    ("xdg", "domain"): "XdG chooses its gates by the task",
    ("xdg", "class"): "XdG chooses its gates by the task",
    ("separate", "domain"): "Separate Networks are chosen by the task",
    ("separate", "class"): "Separate Networks are chosen by the task",
    **{("generative-classifier", s): "generative-classifier needs all" for s in ("task", "domain", "hidden")},
    ("icarl", "task"): "iCaRL distils the current data on the classes of all earlier tasks",
    ("icarl", "domain"): "iCaRL distils the current data on the classes of all earlier tasks",
    ("icarl", "hidden"): "iCaRL distils the current data on the classes of all earlier tasks",
}


@pytest.mark.parametrize("scenario", [*SCENARIOS, "hidden"])
@pytest.mark.parametrize("name", NAMES)
def test_the_dashes_of_the_tables(name, scenario):
    reason = parse(name).refuse(setting_of(scenario))
    expected = DASHES.get((name, scenario))
    assert reason is None if expected is None else reason.startswith(expected)


def test_a_composition_is_refused_for_the_part_that_cannot_work():
    assert "XdG" in parse("ewc:strength=1+xdg:share=0.5").refuse(setting_of("class"))
    assert "iCaRL" in parse("xdg:share=0.5+icarl").refuse(setting_of("task"))


@pytest.mark.parametrize("method", ["dgr", "dgr-distill", "dgr-distill+xdg:share=0.5"])
@pytest.mark.parametrize("unit_interval", [True, False])
def test_a_generator_models_pixels_or_any_numbers(method, unit_interval):
    setting = setting_of("task", unit_interval=unit_interval)
    assert parse(method).refuse(setting) is None
    assert parse(method).parts[0].networks(setting)["generator"].binary == unit_interval


@pytest.mark.parametrize(("method", "scenario"), [("icarl", "task"), ("icarl", "domain"), ("xdg", "class")])
def test_a_refused_pair_is_not_trained(method, scenario):
    with pytest.raises(ThreefoldError) as info:
        threefold.run(STREAMS["split"], scenario=scenario, method=method, seeds=1, store=None, iters=1, batch=8)
    assert str(info.value).startswith(DASHES[(method, scenario)])

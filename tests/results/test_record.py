"""Records and the keys of runs."""

import json
import math
import string
from base64 import b64encode
from hashlib import sha256
from zlib import compress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from threefold.errors import ThreefoldError
from threefold.results import Record, pack, run_key, shown_images, unpack, utc_now

SPEC = {"stream": "split-mnist", "scenario": "class", "method": {"name": "ewc", "strength": 1e8}, "seed": 3}


def record(**changes):
    fields = {
        "key": run_key(SPEC),
        "spec": SPEC,
        "status": "finished",
        "initial": [10.0, 12.5],
        "matrix": [[99.0, 0.0], [1 / 3, 98.0]],
        "timings": {"train": 1.5},
        "environment": {"device": "cpu", "git": None},
    }
    return Record(**(fields | changes))


def test_the_key_is_the_hash_it_is_said_to_be():
    """Worked outside: sha256 of the text below. A change here makes every stored run invisible."""
    text = '{"a":[1,0.1,true,null],"seed":3}'
    assert run_key({"seed": 3, "a": (1.0, 0.1, True, None)}) == sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"lr": 1}, {"lr": 1.0}),
        ({"lr": 1e8}, {"lr": 100000000}),
        ({"lr": 0.0}, {"lr": -0.0}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({"a": np.float64(0.1)}, {"a": 0.1}),
    ],
)
def test_equal_specs_have_one_key(one, other):
    assert run_key(one) == run_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 0.1}, {"a": 0.1 + 2**-56}),
        ({"a": None}, {}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": 2**53}, {"a": 2**53 + 1}),
        ({"a": {"b": 1}}, {"a": {}, "b": 1}),
    ],
)
def test_different_specs_have_different_keys(one, other):
    assert run_key(one) != run_key(other)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"method": {"strength": math.nan}}, "spec.method.strength is nan; it must be a finite number."),
        ({"lr": [0.1, -math.inf]}, "spec.lr[1] is -inf; it must be a finite number."),
        ({"lr": np.float32(0.1)}, "spec.lr is a float32; it must be"),
        ({"seeds": {1, 2}}, "spec.seeds is a set; it must be"),
        ({"tasks": {1: "a"}}, "spec.tasks has a field named 1; the names of fields must be text."),
    ],
)
def test_what_has_no_key(spec, words):
    with pytest.raises(ThreefoldError) as caught:
        run_key(spec)
    assert words in str(caught.value)


words = st.text('aé\u2028\0😀"\\', max_size=4)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words
specs = st.dictionaries(
    st.text(string.ascii_letters),
    st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3)),
    max_size=5,
)


@settings(deadline=None)
@given(specs)
def test_a_key_survives_storage(spec):
    assert run_key(json.loads(json.dumps(spec))) == run_key(spec)


@settings(deadline=None)
@given(specs, st.integers(-(2**60), 2**60), st.integers(-(2**60), 2**60))
def test_another_seed_is_another_key(spec, seed, other):
    assert (run_key(spec | {"seed": seed}) == run_key(spec | {"seed": other})) == (seed == other)


def test_a_record_survives_json():
    before = record()
    text = json.dumps(before.to_json(), allow_nan=False)
    after = Record.from_json(json.loads(text))
    assert after == before
    assert hash(after) == hash(before)
    assert after != record(timings={"train": 2.0})
    assert before != "a record"
    assert after.matrix[1][0] == 1 / 3


def test_metrics_are_computed_and_never_stored(monkeypatch):
    """So a metric that is added later is there for runs of any age."""
    before = record()
    assert before.metrics["average_accuracy"] == (1 / 3 + 98.0) / 2
    stored = before.to_json()
    assert "metrics" not in stored
    monkeypatch.setattr(
        "threefold.results.record.measure", lambda initial, matrix, curve, ends: {"later": matrix[0][0]}
    )
    assert Record.from_json(stored).metrics == {"later": 99.0}


@settings(deadline=None)
@given(
    st.sampled_from(["bool", "uint8", "int16", "int64", "float16", "float32", "float64", "complex64"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 2**32),
)
def test_an_array_of_any_kind_of_number_comes_back(dtype, shape, seed):
    source = np.random.default_rng(seed)
    before = (100 * source.standard_normal(shape)).astype(dtype)
    after = unpack(json.loads(json.dumps(pack(before))))
    assert after.dtype == before.dtype
    assert after.shape == before.shape
    assert np.array_equal(after, before)


@pytest.mark.parametrize("shape", [(), (4,), (2, 4), (2, 3, 5), (2, 0, 4), (0, 3, 4), (1, 2, 3, 4), (2, 3, 2, 2, 2)])
def test_what_is_no_image_is_none(shape):
    assert shown_images(np.zeros(shape, np.uint8)) is None
    assert shown_images(np.zeros((2, 3, 4), np.float32)) is None
    assert shown_images(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))[1, 2].tolist() == [[20, 21], [22, 23]]


def test_three_channels_are_a_picture_in_colour():
    kept = np.arange(72, dtype=np.uint8).reshape(2, 3, 12)
    images = shown_images(kept)
    assert images.shape == (2, 3, 2, 2, 3)
    for task, image, channel, row, column in np.ndindex(2, 3, 3, 2, 2):
        assert images[task, image, row, column, channel] == kept[task, image, 4 * channel + 2 * row + column]
    assert np.array_equal(shown_images(kept.reshape(2, 3, 3, 2, 2)), images)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_with_channels_may_be_wider_than_high(channels):
    kept = np.random.default_rng(0).integers(0, 256, (2, 4, channels, 3, 5), dtype=np.uint8)
    images = shown_images(kept)
    assert images.shape == (2, 4, 3, 5, *[3] * (channels == 3))
    assert np.array_equal(images.reshape(2, 4, 3, 5, channels), kept.transpose(0, 1, 3, 4, 2))


PACKED = pack(np.arange(6, dtype=np.float32))


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [7]},
        {"shape": [5]},
        {"shape": [-6]},
        {"shape": [10**30]},
        {"dtype": "|O"},
        {"dtype": "<U4"},
        {"bytes": "!"},
        {"bytes": PACKED["bytes"][:-8]},
        {"bytes": b64encode(compress(bytes(10**7))).decode()},
    ],
)
def test_what_is_no_packed_array_is_refused(changes):
    with pytest.raises(ValueError, match=r"bytes|type|data|Incorrect|max_length"):
        unpack(PACKED | changes)


def test_a_diverged_record_keeps_what_was_measured():
    before = record(status="diverged", diverged_at=1, matrix=[[99.0, 0.0], [math.nan, math.nan]])
    after = Record.from_json(json.loads(json.dumps(before.to_json(), allow_nan=False)))
    assert after == before
    assert np.array_equal(np.array(after.matrix), [[99.0, 0.0], [math.nan, math.nan]], equal_nan=True)
    assert before.to_json()["matrix"] == [[99.0, 0.0], [None, None]]


@pytest.mark.parametrize(
    "changes",
    [
        {"initial": [10.0]},
        {"matrix": [[99.0, 0.0]]},
        {"matrix": [[99.0, 0.0], [1.0]]},
        {"initial": [], "matrix": []},
        {"initial": [10.0, 100.5]},
        {"initial": [10.0, math.nan]},
        {"matrix": [[99.0, 0.0], [math.nan, 1.0]]},
        {"matrix": [[99.0, -1.0], [1.0, 1.0]]},
        {"status": "diverged"},
        {"status": "running"},
        {"diverged_at": 1},
        {"status": "diverged", "diverged_at": 2},
        {"status": "diverged", "diverged_at": 1},  # yet row 1 holds numbers
        {"status": "diverged", "diverged_at": 1, "matrix": [[math.nan] * 2] * 2},  # yet row 0 was measured
    ],
)
def test_a_record_that_contradicts_itself_is_refused(changes):
    with pytest.raises(ValueError, match=r"matrix|status|accuracy"):
        record(**changes)


def test_created_is_utc():
    assert utc_now().endswith("+00:00")
    assert len(utc_now()) == len("2026-01-01T00:00:00+00:00")
    assert record().created <= utc_now()

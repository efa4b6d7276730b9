"""Untrusted files are read within limits: no blocking, no unbounded memory, no endless nesting."""

import gzip
import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from threefold import reading
from threefold.reading import DEPTH, DIGITS, open_file, parse_json, parse_toml, read_file, read_lines


@pytest.fixture(autouse=True)
def _soon():
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < 20


@pytest.fixture
def places(tmp_path):
    """What is no file, by what is said of it."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    special = "it is a pipe or device, not a file"
    return {tmp_path / "pipe": special, tmp_path / "link": special, Path("/dev/zero"): special, tmp_path: "a folder"}


def test_what_is_no_file_is_refused_without_waiting(places):
    for place, said in places.items():
        for read in (open_file, lambda path: read_file(path, 9), lambda path: next(read_lines(path, 9))):
            with pytest.raises(OSError, match=said):
                read(place)


def test_a_pipe_that_takes_the_place_of_a_file_in_between_is_refused_too(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    before = os.stat(tmp_path / "file")
    monkeypatch.setattr(reading.os, "stat", lambda path, **_: before)
    with pytest.raises(OSError, match="pipe or device"):
        open_file(tmp_path / "pipe")


def test_a_file_is_read_up_to_its_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_file(path, 5) == b"12345"
    with pytest.raises(OSError, match="it has more than 4 bytes"):
        read_file(path, 4)


@pytest.mark.parametrize("name", ["a.txt", "a.gz"])
def test_lines_are_counted_as_they_come(tmp_path, monkeypatch, name):
    path, lines = tmp_path / name, [b"one\n", b"two\n", b"three"]
    path.write_bytes(gzip.compress(b"".join(lines)) if name == "a.gz" else b"".join(lines))
    assert list(read_lines(path, 13)) == lines
    got = read_lines(path, 12)
    assert [next(got), next(got)] == lines[:2]
    with pytest.raises(OSError, match="it holds more than 12 bytes"):
        next(got)
    monkeypatch.setattr(reading, "LINE", 4)
    with pytest.raises(OSError, match="it has a line of more than 4 bytes"):
        list(read_lines(path, 1000))


JSON = {
    "deep lists": (b"[" * 100_000, "deep"),
    "deep tables": (b'{"a":' * 100_000, "deep"),
    "just too deep": (b"[" * (DEPTH + 1) + b"0" + b"]" * (DEPTH + 1), "deep"),
    "5,000 digits": (b"9" * 5000, "digits"),
    "41 digits": (b"-" + b"1" * (DIGITS + 1), "digits"),
    "NaN": (b"[NaN]", "not finite"),
    "infinity": (b"-Infinity", "not finite"),
    "too large": (b"1e999", "not finite"),
    "half a character": (rb'{"\ud800": 1}', "half a character"),
    "half a character in bytes": (b'"\xed\xa0\x80"', "half a character"),
    "not UTF-8": (b'"\xff"', "codec"),
    "nothing": (b"", "Expecting value"),
}


@pytest.mark.parametrize(("text", "said"), JSON.values(), ids=JSON)
def test_json_beyond_the_limits_is_a_value_error(text, said):
    with pytest.raises(ValueError, match=said):
        parse_json(text)


TOML = {
    "deep lists": (b"a = " + b"[" * 100_000, "deep"),
    "deep tables": (b"a = " + b"{a = " * 100_000, "deep"),
    "just too deep": (b"a = " + b"[" * DEPTH + b"0" + b"]" * DEPTH, "deep"),
    "deep name": (b"a." * 100_000 + b"a = 1", "deep"),
    "deep name in quotes": (b"\"a\" . 'a' . " * 50_000 + b"a = 1", "deep"),
    "deep header": (b"[" + b"a." * 100_000 + b"a]", "deep"),
    "5,000 digits": (b"a = " + b"9" * 5000, "digits"),
    "hexadecimal digits": (b"a = 0x" + b"f" * 5000, "digits"),
    "not TOML": (b"a = = 1", "Invalid value"),
    "not UTF-8": (b'a = "\xff"', "codec"),
}


@pytest.mark.parametrize(("content", "said"), TOML.values(), ids=TOML)
def test_toml_beyond_the_limits_is_a_value_error(content, said):
    with pytest.raises(ValueError, match=said):
        parse_toml(content)


def test_what_people_write_is_within_the_limits():
    text = b'title = "v1.2.3.4 of a.b.c"\n[a.b]\nvalues = [' + b"0.1,0.25, 1e-3," * 2000 + b"]\n"
    found = parse_toml(text)
    assert len(found["a"]["b"]["values"]) == 6000
    assert parse_json("[" * DEPTH + "12" * (DIGITS // 2) + "]" * DEPTH)
    assert parse_json(rb'"\ud83d\ude00"') == "😀"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@settings(deadline=None, max_examples=40)
@given(json_values)
def test_plain_data_come_back(value):
    assert parse_json(json.dumps(value)) == value

"""`--cluster` on the command line: what is wrong is one sentence, and nothing is written."""

import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from two_nodes import SPEC, arrays

from threefold import extras
from threefold.cli import main
from threefold.cluster import SETTINGS


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    np.savez(tmp_path / "small.npz", **arrays())
    (tmp_path / "small.toml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def said(place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The sentence that a command ends with."""

    def call(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["threefold", "experiment", "small.toml", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
        assert sorted(path.name for path in place.iterdir()) == ["small.npz", "small.toml"]
        return err

    return call


def test_without_ray_the_extra_is_named(said: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert re.fullmatch(
        r"threefold: cluster 'auto' needs ray, .*: pip install 'threefold\[cluster\]'\n", said("--cluster", "auto")
    )


def test_a_share_needs_a_cluster(said: Callable[..., str]) -> None:
    assert "per-cohort is 0.5, but there is no cluster; use --cluster auto" in said("--per-cohort", "0.5")


def test_an_address_where_nobody_listens(said: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():  # which stay set otherwise
        monkeypatch.setenv(name, value)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    wanted = rf"threefold: cluster '{address}' cannot be reached \(.*refused\); use a node of it, with.*\n"
    assert re.fullmatch(wanted, said("--cluster", address))

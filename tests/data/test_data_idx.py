"""The idx format, sound and damaged."""

import numpy as np
import pytest
from tiny_mirror import idx_bytes

from threefold.data import idx
from threefold.errors import ThreefoldError


@pytest.mark.parametrize("shape", [(7,), (2, 3), (2, 3, 4), (0, 5)])
def test_what_was_written_is_read(shape):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    assert np.array_equal(idx.parse(idx_bytes(array), "f"), array)


SOUND = idx_bytes(np.zeros((2, 3), np.uint8))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not an idx file: it starts with nothing"),
        (b"\0\0\x08", "is not an idx file: it starts with 00 00 08;"),
        (b"\x1f\x8b\x08\x00" + SOUND, "is not an idx file: it starts with 1f 8b 08 00"),
        (b"\0\0\x0d\x01\0\0\0\0", "holds values of type 0x0d; only unsigned bytes"),
        (b"\0\0\x08\0", "has no dimensions"),
        (SOUND[:10], "ends after 10 bytes; the header alone of 2 dimensions takes 12"),
        (SOUND[:-1], r"has 5 bytes of values; its sizes \(2, 3\) call for 6"),
        (SOUND + b"\0", r"has 7 bytes of values; its sizes \(2, 3\) call for 6"),
        (b"\0\0\x08\x02" + b"\xff" * 8, r"has 0 bytes of values; its sizes \(4294967295, 4294967295\) call for"),
    ],
)
def test_damage_is_named_with_the_file(data, message):
    with pytest.raises(ThreefoldError, match=f"file 'some/file' {message}"):
        idx.parse(data, "some/file")

"""Reads untrusted files within limits.

A file may be a pipe that never ends, a kilobyte that unpacks to gigabytes, or brackets nested a hundred thousand deep.
Refused content raises an OSError (its `strerror` says why) or a ValueError, which the caller turns into a sentence.
"""

import errno
import gzip
import json
import math
import os
import pickletools
import re
import stat
import tomllib
import zipfile
from collections.abc import Iterator
from functools import partial
from os import PathLike
from typing import Any, BinaryIO

from threefold.memory import in_bytes

DEPTH = 32  # lists and tables inside each other
DIGITS = 40  # of a whole number
TOO_LARGE = 10**DIGITS
LINE = 64 << 20  # bytes
TOML_FILE = 1 << 20  # bytes

_TOO_DEEP = f"it is nested more than {DEPTH} levels deep"
_TOO_LONG = f"it has a number of more than {DIGITS} digits"


class NotAFile(OSError):
    """A folder, pipe or device instead of a file, or a link where links are not followed."""


def open_file(path: str | PathLike[str], *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading; a pipe or a device is refused without opening it, as that may block for ever.

    `follow`: whether links are followed. Files that we wrote ourselves are never links.
    """
    return open(path, "rb", opener=partial(_opened, follow))


def _opened(follow: bool, path: str, flags: int) -> int:
    _refuse_special(os.stat(path, follow_symlinks=follow).st_mode)
    descriptor = os.open(path, flags | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    try:
        _refuse_special(os.fstat(descriptor).st_mode)  # the file may have been replaced meanwhile
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_file(path: str | PathLike[str], limit: int) -> bytes:
    """The content of a file of at most `limit` bytes."""
    with open_file(path) as file:
        content = file.read(limit + 1) or b""
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it has more than {in_bytes(limit)}")
    return content


def read_lines(path: str | PathLike[str], limit: int) -> Iterator[bytes]:
    """The lines of a text file, unpacked if its name ends in .gz; at most `limit` unpacked bytes in all.

    The length in a gzip file may be false, so the bytes are counted as they are read.
    """
    with open_file(path) as file:
        packed = str(path).endswith(".gz")
        stream = gzip.GzipFile(fileobj=file) if packed else file
        left = limit
        while line := stream.readline(min(left, LINE) + 1):
            left -= len(line)
            if left < 0:
                raise OSError(errno.EFBIG, f"it holds more than {in_bytes(limit)}{' unpacked' if packed else ''}")
            if len(line) > LINE:
                raise OSError(errno.EFBIG, f"it has a line of more than {in_bytes(LINE)}")
            yield line


def parse_json(text: str | bytes) -> Any:
    """JSON as plain data: finite numbers, text that can be written, not too deep, no endless numbers."""
    try:
        value = json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    check_plain(value)
    return value


def parse_toml(content: bytes) -> dict[str, Any]:
    """TOML as plain data, within the same limits."""
    text = content.decode()
    if _longest_name(text) > DEPTH:
        raise ValueError(_TOO_DEEP)
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python's own limit
        raise ValueError(_TOO_LONG) from None
    check_plain(value)
    return value


def check_plain(value: object, most: int | None = None) -> None:
    """Refuse what later readers could not handle: deep nesting, overlong numbers, lone surrogates.

    `most`: values. Text cannot have more than it has characters, but a pickle may name one list over and over.
    """
    waiting, count = [(value, 0)], 0
    while waiting:
        (item, depth), count = waiting.pop(), count + 1
        if most is not None and count > most:
            raise ValueError(f"it has more than {most} values")
        if depth > DEPTH:
            raise ValueError(_TOO_DEEP)
        if isinstance(item, int) and abs(item) >= TOO_LARGE:
            raise ValueError(_TOO_LONG)
        if isinstance(item, str):
            if not item.isascii() and any("\ud800" <= c <= "\udfff" for c in item):
                raise ValueError(f"it has the text {ascii(item)[:40]}, which holds half a character")
        elif isinstance(item, dict):
            waiting += [(inner, depth + 1) for pair in item.items() for inner in pair]
        elif isinstance(item, list):
            waiting += [(inner, depth + 1) for inner in item]


def check_saved(file: BinaryIO, size: int, most: int | None = None) -> None:
    """Refuse a file that torch.save cannot have written, as loading it may take more memory than the file's size.

    ValueError says why; BadZipFile: it is nothing of torch.save. `most`: tensors.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
            if any(r.compress_type != zipfile.ZIP_STORED for r in records) or sum(r.file_size for r in records) > size:
                raise ValueError("unpacks to more than it is, which nothing does that torch.save writes")
            if most is not None and len(records) > most:
                raise ValueError(f"has more than {most} tensors")
            pickled = [record for record in records if record.filename.lower().endswith(".pkl")]
            for record in pickled:
                del record.CRC  # PyTorch may leave it out; what is damaged is found in what it stands for
            pickles = [archive.read(record) for record in pickled]
    except (NotImplementedError, RuntimeError, EOFError, UnicodeError) as error:
        raise zipfile.BadZipFile(str(error)) from error
    for content in pickles:
        try:
            asked = [argument for code, argument, _ in pickletools.genops(content) if code.name == "GLOBAL"]
        except ValueError as error:
            raise zipfile.BadZipFile(str(error)) from error
        if any(str(name).startswith(("builtins ", "__builtin__ ")) for name in asked):  # bytearray(10**12) is one
            raise ValueError("holds more than tensors, which is never loaded")


def _refuse_special(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise NotAFile(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(mode):
        raise NotAFile(errno.EINVAL, "it is a pipe or device, not a file")


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > DIGITS:
        raise ValueError(_TOO_LONG)
    return int(digits)


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"it has the number {number[:20]}, which is not finite")
    return value


def _longest_name(text: str) -> int:
    """The number of parts of the longest dotted name, in which Python's TOML parser is quadratic."""
    bare = re.sub(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'', "x", text)
    longest = run = 0
    for piece in bare.split("."):
        run = run + 1 if re.fullmatch(r"[ \t]*[\w-]+[ \t]*", piece) else 0
        longest = max(longest, run + 1)
    return longest

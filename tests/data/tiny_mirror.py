"""A dataset of a few kilobytes, and a mirror of it with every failure we know of.

Also a program: `python tiny_mirror.py ROOT URL…` fetches it from these mirrors, for tests that need other processes.
"""

import gzip
import struct
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import numpy as np

from threefold.data import idx
from threefold.data.catalog import Debian, File, KnownDataset, Npm
from threefold.data.catalog import Mirror as FileMirror
from threefold.data.download import Patience
from threefold.data.sources import obtain

HASTY = Patience(silence=1.0, window=1.2, least=64, total=5.0)


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def contents(seed: int = 1) -> dict[str, bytes]:
    """Noise, so that the packed files are no smaller than the others and take a while to trickle."""
    draw = np.random.default_rng(seed)
    return {
        "train-images-idx3-ubyte": idx_bytes(draw.integers(0, 256, (40, 6, 6), dtype=np.uint8)),
        "train-labels-idx1-ubyte": idx_bytes(np.arange(40, dtype=np.uint8) % 4),
        "t10k-images-idx3-ubyte": idx_bytes(draw.integers(0, 256, (8, 6, 6), dtype=np.uint8)),
        "t10k-labels-idx1-ubyte": idx_bytes(np.arange(8, dtype=np.uint8) % 4),
    }


CONTENTS = contents()


def known_files(contents: dict[str, bytes]) -> tuple[File, ...]:
    return tuple(File(file, len(data), sha256(data).hexdigest()) for file, data in contents.items())


def entry(*mirrors: str, package: Npm | Debian | None = None, name: str = "tiny", seed: int = 1) -> KnownDataset:
    packages = [package] if package else []
    return KnownDataset(name, known_files(contents(seed)), idx.read, (*map(FileMirror, mirrors), *packages))


class Mirror:
    """Serves /HOW/NAME.gz in the manner HOW; `asked` lists the paths, `hanging` is set when one stops half-way."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.archives: dict[str, bytes] = {}
        self.hanging = Event()
        self.closing = Event()
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.asked.append(self.path)
                _, how, file = self.path.split("/")
                body = mirror.archives.get(file) or gzip.compress(CONTENTS[file.removesuffix(".gz")], mtime=0)
                with suppress(OSError):  # a client that had enough goes away
                    MANNERS[how](self, mirror, body)
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

            def head(self, length: int | None, status: int = 200) -> Callable[[bytes], object]:
                self.send_response(status)
                if length is not None:
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                return self.wfile.write

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    def url(self, how: str) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/{how}/"


@contextmanager
def serving():
    mirror = Mirror()
    thread = Thread(target=mirror.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield mirror
    finally:
        mirror.closing.set()
        mirror.server.shutdown()
        mirror.server.server_close()
        thread.join()


def good(handler, mirror, body):
    handler.head(len(body))(body)


def slow(handler, mirror, body):
    write = handler.head(len(body))
    for start in range(0, len(body), 100):
        write(body[start : start + 100])
        time.sleep(0.02)


def truncated(handler, mirror, body):
    handler.head(len(body))(body[: len(body) // 2])


def truncated_unsized(handler, mirror, body):
    handler.head(None)(body[: len(body) // 2])


def wrong(handler, mirror, body):
    other = gzip.compress(bytes(len(gzip.decompress(body))))
    handler.head(len(other))(other)


def page(handler, mirror, body):
    text = b"<html>please log in to this network</html>"
    handler.head(len(text))(text)


def absent(handler, mirror, body):
    handler.head(0, 404)


def moved(handler, mirror, body):
    handler.send_response(302)
    handler.send_header("Location", handler.path.replace("/moved/", "/good/"))
    handler.end_headers()


def endless(handler, mirror, body):
    write = handler.head(None)
    while not mirror.closing.is_set():
        write(bytes(65536))


def silent(handler, mirror, body):
    mirror.closing.wait(10)


def trickle(handler, mirror, body):
    write = handler.head(len(body))
    for value in body:
        write(bytes([value]))
        if mirror.closing.wait(0.05):
            return


def hang(handler, mirror, body):
    handler.head(len(body))(body[: len(body) // 2])
    mirror.hanging.set()
    mirror.closing.wait(30)


def unpacked(handler, mirror, body):
    data = gzip.decompress(body)
    handler.head(len(data))(data)


def labels_only(handler, mirror, body):
    (good if "labels" in handler.path else absent)(handler, mirror, body)


def images_of_training_only(handler, mirror, body):
    (good if "train-images" in handler.path else absent)(handler, mirror, body)


MANNERS = {
    manner.__name__: manner
    for manner in (
        good,
        slow,
        truncated,
        truncated_unsized,
        wrong,
        page,
        absent,
        moved,
        endless,
        silent,
        trickle,
        hang,
        unpacked,
        labels_only,
        images_of_training_only,
    )
}

if __name__ == "__main__":
    obtain(entry(*sys.argv[2:]), root=Path(sys.argv[1]), patience=Patience(silence=20))

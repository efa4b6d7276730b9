"""Serialises cohorts for workers. They are small; their streams and data are large, and sent once to each node."""

import warnings
from collections.abc import Callable
from io import BytesIO
from pickle import Unpickler
from typing import Any

import ray
import torch
from numpy.typing import NDArray
from ray.cloudpickle import CloudPickler

from threefold.data import Dataset, check, load, names
from threefold.experiments import Cohort
from threefold.streams import Stream

Ref = ray.ObjectRef[Any]
Known = tuple[str, str, bool, str]  # a dataset's name and fingerprint, whether it is normalized, of which features
TENSORS = ("train_x", "train_y", "test_x", "test_y")


class _Packer(CloudPickler):
    """Pickles an object without the parts of one type in it, which are listed instead."""

    def __init__(self, file: BytesIO, apart: type, name: Callable[[Any], Any]) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self.apart, self.name = apart, name
        self.listed: dict[Any, Any] = {}

    def persistent_id(self, thing: object) -> Any:
        if not isinstance(thing, self.apart):
            return None
        name = self.name(thing)
        self.listed[name] = thing
        return name


class _Unpacker(Unpickler):
    def __init__(self, content: bytes, found: Callable[[Any], object]) -> None:
        super().__init__(BytesIO(content))
        self.found = found

    def persistent_load(self, name: Any) -> object:
        return self.found(name)


def _pack(thing: object, apart: type, name: Callable[[Any], Any]) -> tuple[bytes, dict[Any, Any]]:
    packer = _Packer(buffer := BytesIO(), apart, name)
    packer.dump(thing)  # type: ignore[no-untyped-call]
    return buffer.getvalue(), packer.listed


class ObjectStore:
    """The driver's side: streams and datasets that were put into the object store."""

    def __init__(self) -> None:
        self.streams: dict[str, tuple[Stream, Ref]] = {}  # by id; streams are kept, so that ids stay unique
        self.datasets: dict[Known, Ref] = {}

    def pack(self, cohort: Cohort) -> tuple[bytes, dict[str, Ref]]:
        """A cohort without its stream, and references to that."""
        content, streams = _pack(cohort, Stream, lambda stream: str(id(stream)))
        for name, stream in streams.items():
            if name not in self.streams:
                self.streams[name] = stream, ray.put(self._pack_stream(stream))
        return content, {name: self.streams[name][1] for name in streams}

    def _pack_stream(self, stream: Stream) -> tuple[bytes, dict[Known, Ref]]:
        content, datasets = _pack(
            stream, Dataset, lambda data: (data.name, data.fingerprint, data.is_normalized, data.features)
        )
        for known, data in datasets.items():
            if known not in self.datasets:  # arrays are shared by all workers of a node
                self.datasets[known] = ray.put({field: getattr(data, field).numpy() for field in TENSORS})
        return content, {known: self.datasets[known] for known in datasets}


_streams: dict[str, Any] = {}  # unpacked streams, which later cohorts of this worker will need
_datasets: dict[Known, Dataset] = {}


def unpack(content: bytes, refs: dict[str, Ref]) -> Cohort:
    """The worker's side: rebuild the cohort."""

    def stream(name: str) -> object:
        if name not in _streams:
            packed, datasets = ray.get(refs[name])
            _streams[name] = _Unpacker(packed, lambda known: _dataset(known, datasets[known])).load()
        return _streams[name]

    cohort: Cohort = _Unpacker(content, stream).load()
    return cohort


def _dataset(known: Known, ref: Ref) -> Dataset:
    if known not in _datasets:
        _datasets[known] = _from_cache(*known) or _from_driver(*known, ray.get(ref))
    return _datasets[known]


def _from_cache(name: str, fingerprint: str, is_normalized: bool, features: str) -> Dataset | None:
    """A known dataset from this machine's own folder, if complete. Features are not computed again."""
    if features or name not in names() or any(file.state != "good" for file in check(name)):
        return None
    data = load(name).normalized() if is_normalized else load(name)
    return data if data.fingerprint == fingerprint else None


def _from_driver(
    name: str, fingerprint: str, is_normalized: bool, features: str, arrays: dict[str, NDArray[Any]]
) -> Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these arrays are read-only, and never written to
        train_x, train_y, test_x, test_y = (torch.from_numpy(arrays[field]) for field in TENSORS)
    return Dataset(name, train_x, train_y, test_x, test_y, fingerprint, is_normalized, features)

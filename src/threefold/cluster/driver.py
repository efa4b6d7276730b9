"""The driver's side: cohorts become Ray tasks, whose events are passed on to the scheduler."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayError

from threefold.cluster import worker
from threefold.cluster.connect import first_sentence
from threefold.cluster.serialization import ObjectStore
from threefold.engine import Progress
from threefold.errors import ThreefoldError
from threefold.experiments import Job
from threefold.experiments.cohort import described
from threefold.experiments.executor import too_large

ATTEMPTS = 3  # without finishing a task in between
WAIT = 0.5  # seconds to wait for events
LOOK = 1.0  # seconds between two queries of the nodes
WITHOUT_LIMIT = 1 << 60  # bytes


@dataclass(eq=False)
class Remote:
    """A cohort on a worker."""

    job: Job
    failed: int = 0  # times since its last finished task


class Cluster:
    """A Ray cluster: as many cohorts at once as there are CPUs or GPUs, or shares of them."""

    largest_first = True  # so that no large cohort starts when all others are done

    def __init__(self, device: str, share: float) -> None:
        if not (0 < share < 1 or (share >= 1 and share == int(share))):
            raise ThreefoldError(
                f"per-cohort must be a whole number of CPUs or GPUs, or a fraction below 1, got {share:g}."
            )
        self.refused: dict[str, str] = {}  # nodes with other versions than ours, with those versions
        self.nodes: list[Mapping[str, Any]] = []
        self.looked = -LOOK
        self.cuda = device != "cpu" and any(node["Resources"].get("GPU") for node in self._nodes())
        if device == "cuda" and not self.cuda:
            raise ThreefoldError("device is 'cuda', but no node of the cluster has a GPU; use 'cpu'.")
        self.need = self._need(share)
        if not self._slots():
            raise ThreefoldError(f"per-cohort is {share:g}, but no node of the cluster has {self._needed()}.")
        self.task, self.object_store = worker.remote(), ObjectStore()
        self.remotes: dict[Any, Remote] = {}

    def _need(self, share: float) -> dict[str, float]:
        """A cohort's resources; with a GPU, its share of the machine's cores too."""
        if not self.cuda:
            return {"CPU": share}
        machines = [node["Resources"] for node in self._nodes() if node["Resources"].get("GPU")]
        cores = min(machine.get("CPU", 0) / machine["GPU"] for machine in machines)
        return {"CPU": max(1, int(cores * share)), "GPU": share}

    def _needed(self) -> str:
        return " and ".join(f"{number:g} {name}s" for name, number in self.need.items())

    def memory(self, device: str) -> int:
        """Without limit, as a worker's GPU memory is unknown here: a cohort that is too large for it is halved."""
        if device == "cuda":
            return WITHOUT_LIMIT
        machines = [node["Resources"] for node in self._nodes() if node["Resources"].get("CPU")]
        return int(min((m["memory"] * self.need["CPU"] / m["CPU"] for m in machines), default=WITHOUT_LIMIT))

    def room(self) -> int:
        return max(0, self._slots() - len(self.remotes))

    def idle(self) -> int:
        """Excludes resources that other users of the cluster occupy."""
        return min(self.room(), self._times(ray.available_resources()))  # type: ignore[no-untyped-call]

    def _slots(self) -> int:
        return sum(self._times(node["Resources"]) for node in self._nodes())

    def _times(self, resources: Mapping[str, float]) -> int:
        """How many cohorts these resources suffice for."""
        return int(min(resources.get(name, 0) / number for name, number in self.need.items()))

    def _nodes(self) -> list[Mapping[str, Any]]:
        """The nodes that are alive and not refused."""
        if time.monotonic() - self.looked >= LOOK:
            self.nodes, self.looked = ray.nodes(), time.monotonic()  # type: ignore[no-untyped-call]
        return [node for node in self.nodes if node["Alive"] and node["NodeID"] not in self.refused]

    def begin(self, job: Job) -> None:
        self._send(Remote(job))

    def _send(self, remote: Remote) -> None:
        packed, refs = self.object_store.pack(remote.job.cohort)
        options: dict[str, Any] = {"num_cpus": self.need["CPU"], "num_gpus": self.need.get("GPU", 0)}
        if self.refused:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(self.refused)})"}
        threads, checkpoint = max(1, int(self.need["CPU"])), remote.job.checkpoint
        begun = self.task.options(scheduling_strategy="SPREAD", **options).remote(
            worker.versions(), packed, refs, checkpoint.content() if checkpoint else None, threads
        )
        self.remotes[begun] = remote

    def attend(self) -> None:
        ready: list[Any] = ray.wait(list(self.remotes), timeout=WAIT)[0]
        if ready:  # and all others that are ready
            ready = ray.wait(list(self.remotes), num_returns=len(self.remotes), timeout=0)[0]
        for each in ready:
            try:
                event = ray.get(next(each))
            except StopIteration:
                self._ended(each, worker.WorkerError("it ended without a result"))
            except OutOfMemoryError:  # the machine's memory ran out, and Ray ended the worker
                self._ended(each, worker.TooLarge())
            except RayError as error:
                self._ended(each, worker.WorkerError(f"{type(error).__name__}: {first_sentence(error)}"))
            else:
                self._handle(each, event)

    def _handle(self, each: Any, event: Any) -> None:
        remote = self.remotes[each]
        match event:
            case Progress():
                remote.job.progress(event)
            case worker.Kept():
                remote.failed = 0
                if remote.job.checkpoint:
                    remote.job.checkpoint.keep(event.content)
            case _:
                self._ended(each, event)

    def _ended(self, each: Any, event: Any) -> None:
        remote = self.remotes.pop(each)
        job = remote.job
        match event:
            case worker.Finished():
                if {record.key for record in event.records} == {run.key for run in job.cohort.runs}:
                    job.finished(event.records)
                else:
                    job.failed("the worker has other code of a method of your own")
            case worker.TooLarge() if len(job.cohort.runs) > 1:
                job.too_large()
            case worker.TooLarge():
                job.failed(too_large(job.cohort))
            case worker.WorkerError():
                remote.failed += 1
                if remote.failed < ATTEMPTS:
                    job.warn(f"{described(job.cohort)} is begun again from its last finished task: {event.reason}.")
                    self._send(remote)
                else:
                    job.failed(f"{ATTEMPTS} times, at last by {event.reason}")
            case {"node": node, "versions": found}:
                self._refuse(node, found, job)
                self._send(remote)

    def _refuse(self, node: str, found: Mapping[str, str], job: Job) -> None:
        """Give no more cohorts to a node with other versions."""
        theirs, ours = (", ".join(f"{name} {v}" for name, v in each.items()) for each in (found, worker.versions()))
        where = next((each["NodeManagerAddress"] for each in self.nodes if each["NodeID"] == node), node)
        if node not in self.refused:
            self.refused[node] = theirs
            sentence = f"node {where} has {theirs}, but the driver has {ours}"
            if not self._nodes():
                raise ThreefoldError(f"{sentence}; use the same on every node.")
            job.warn(f"{sentence}; it is left out.")

    def abandon(self) -> None:
        for each in self.remotes:
            ray.cancel(each, force=True)
        self.remotes.clear()

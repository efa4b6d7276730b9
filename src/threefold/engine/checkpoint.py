"""A finished task is kept the moment it is finished (DESIGN idea 6)."""

import os
from pathlib import Path
from typing import Any

import torch

from threefold.errors import ThreefoldError

FORMAT = 1


class Checkpoint:
    """One cohort's file. Written whole or not at all; a damaged one is set aside and never half-used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set_aside: Path | None = None  # where a damaged file went

    def save(self, state: dict[str, Any]) -> None:
        temporary = self.path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                torch.save({"format": FORMAT, **state}, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
            temporary.unlink(missing_ok=True)
            raise ThreefoldError(
                f"checkpoint {self.path} cannot be written ({error}); right would be a store in a folder with space."
            ) from error

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """The last finished task's state; None when there is none that can be used."""
        if not self.path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(self.path, map_location=device, weights_only=True)
            if state["format"] == FORMAT:
                return state
        except Exception:  # whatever a damaged file makes of the reader
            pass
        self.set_aside = self.path.with_suffix(".damaged")
        self.path.replace(self.set_aside)
        return None

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)

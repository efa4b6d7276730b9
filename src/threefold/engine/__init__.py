"""Trains cohorts: all replicas of an experiment in lockstep, as one stack."""

from threefold.engine.checkpoint import Checkpoint
from threefold.engine.train import Outcome, Progress, Training, train

__all__ = ["Checkpoint", "Outcome", "Progress", "Training", "train"]

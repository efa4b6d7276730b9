"""Trains cohorts: all replicas of an experiment as one stack, or a few."""

from threefold.engine.checkpoint import Checkpoint
from threefold.engine.sharing import Replicas
from threefold.engine.train import Measured, Progress, train
from threefold.engine.training import Training

__all__ = ["Checkpoint", "Measured", "Progress", "Replicas", "Training", "train"]

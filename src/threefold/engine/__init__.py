"""Trains cohorts: all replicas of an experiment in lockstep, as one stack or a few."""

from threefold.engine.checkpoint import Checkpoint
from threefold.engine.company import Crew
from threefold.engine.train import Outcome, Progress, train, train_together
from threefold.engine.training import Training

__all__ = ["Checkpoint", "Crew", "Outcome", "Progress", "Training", "train", "train_together"]

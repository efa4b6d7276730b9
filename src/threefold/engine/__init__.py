"""Trains cohorts: all replicas of an experiment as one stack, or as a few."""

from threefold.engine.checkpoint import Checkpoint
from threefold.engine.kept import KeptNetwork, state_of
from threefold.engine.optimizer import OPTIMIZERS, SGD, Adam, AdamW, Optimizer, find_optimizer
from threefold.engine.schedule import SCHEDULES, Schedule, find_schedule
from threefold.engine.sharing import Replicas
from threefold.engine.stack import ReplicaStack
from threefold.engine.train import Measured, Progress, train
from threefold.engine.training import Evaluation, Training

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "SGD",
    "Adam",
    "AdamW",
    "Checkpoint",
    "Evaluation",
    "KeptNetwork",
    "Measured",
    "Optimizer",
    "Progress",
    "ReplicaStack",
    "Replicas",
    "Schedule",
    "Training",
    "find_optimizer",
    "find_schedule",
    "state_of",
    "train",
]

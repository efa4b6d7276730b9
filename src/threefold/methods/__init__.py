"""Continual-learning methods, one file for each of the paper's strategies."""

from threefold.methods.baselines import Offline
from threefold.methods.method import Method
from threefold.methods.part import Part, hyper
from threefold.methods.registry import METHODS, build, parse, register

__all__ = ["METHODS", "Method", "Offline", "Part", "build", "hyper", "parse", "register"]

"""Continual-learning methods, one file for each of the paper's strategies."""

from threefold.methods.baselines import Offline
from threefold.methods.exemplars import AGEM, ER, ICaRL
from threefold.methods.gating import XdG
from threefold.methods.method import Method
from threefold.methods.paper import resolve
from threefold.methods.part import Part, hyper
from threefold.methods.registry import METHODS, build, parse, register
from threefold.methods.regularization import EWC, SI, OnlineEWC
from threefold.methods.replay import DGR, DGRDistill, LwF

__all__ = [
    "AGEM",
    "DGR",
    "ER",
    "EWC",
    "METHODS",
    "SI",
    "DGRDistill",
    "ICaRL",
    "LwF",
    "Method",
    "Offline",
    "OnlineEWC",
    "Part",
    "XdG",
    "build",
    "hyper",
    "parse",
    "register",
    "resolve",
]

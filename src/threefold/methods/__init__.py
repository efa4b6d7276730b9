"""Continual-learning methods, one file for each of the paper's strategies."""

from threefold.methods.agem import AGEM
from threefold.methods.baselines import Offline
from threefold.methods.bir import BIR
from threefold.methods.citations import bibliography, citation_of, entries
from threefold.methods.der import DER, DERpp
from threefold.methods.exemplars import ER, Exemplars
from threefold.methods.fromp import FROMP
from threefold.methods.gating import XdG
from threefold.methods.gem import GEM
from threefold.methods.generative import GenerativeClassifier
from threefold.methods.icarl import ICaRL
from threefold.methods.learner import (
    Batch,
    Learner,
    Noise,
    OfLabel,
    PathIntegral,
    Quadratic,
    Replay,
    Samples,
    Setting,
    Stack,
    Step,
    Uniform,
    quadratic,
)
from threefold.methods.losses import cross_entropy, only_active
from threefold.methods.mas import MAS
from threefold.methods.method import Method, classification
from threefold.methods.paper import resolve
from threefold.methods.part import Part, hyper
from threefold.methods.registry import METHODS, build, parse, register
from threefold.methods.regularization import EWC, SI, OnlineEWC, per_replica
from threefold.methods.replay import DGR, DGRDistill, LwF, Taught
from threefold.methods.separate import Separate

__all__ = [
    "AGEM",
    "BIR",
    "DER",
    "DGR",
    "ER",
    "EWC",
    "FROMP",
    "GEM",
    "MAS",
    "METHODS",
    "SI",
    "Batch",
    "DERpp",
    "DGRDistill",
    "Exemplars",
    "GenerativeClassifier",
    "ICaRL",
    "Learner",
    "LwF",
    "Method",
    "Noise",
    "OfLabel",
    "Offline",
    "OnlineEWC",
    "Part",
    "PathIntegral",
    "Quadratic",
    "Replay",
    "Samples",
    "Separate",
    "Setting",
    "Stack",
    "Step",
    "Taught",
    "Uniform",
    "XdG",
    "bibliography",
    "build",
    "citation_of",
    "classification",
    "cross_entropy",
    "entries",
    "hyper",
    "only_active",
    "parse",
    "per_replica",
    "quadratic",
    "register",
    "resolve",
]

"""The methods by name, and how the command line writes them: `NAME:key=value,key=value`, joined by `+`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from threefold.errors import ThreefoldError, unknown
from threefold.fingerprint import is_ours
from threefold.methods.agem import AGEM
from threefold.methods.baselines import Offline
from threefold.methods.bir import BIR
from threefold.methods.der import DER, DERpp
from threefold.methods.exemplars import ER
from threefold.methods.fromp import FROMP
from threefold.methods.gating import XdG
from threefold.methods.gem import GEM
from threefold.methods.generative import GenerativeClassifier
from threefold.methods.icarl import ICaRL
from threefold.methods.mas import MAS
from threefold.methods.method import Method
from threefold.methods.part import Part
from threefold.methods.regularization import EWC, SI, OnlineEWC
from threefold.methods.replay import DGR, DGRDistill, LwF
from threefold.methods.separate import Separate
from threefold.values import check_keys, check_name, check_words, pairs_of


@dataclass(frozen=True)
class Entry:
    """A method of the registry."""

    name: str
    title: str
    strategy: str
    meaning: str
    part: type[Part] | None = None


METHODS: dict[str, Entry] = {}


def register(part: type[Part] | None, strategy: str, title: str, meaning: str = "", name: str = "") -> None:
    """Make a method known by its name; its meaning is the first line of its docstring. Registering again replaces it,
    as a notebook redefines its classes."""
    if part is not None and not (isinstance(part, type) and issubclass(part, Part)):
        raise ThreefoldError(f"method must be a class that inherits from Part, got {part!r}.")
    check_words(strategy=strategy, title=title, meaning=meaning)
    name = getattr(part, "name", "") if part else name
    whose = f"name of {part.__name__}" if part else "name"
    check_name(whose, name, {known.name for known in METHODS.values() if known.part is None or is_ours(known.part)})
    meaning = meaning or ((part.__doc__ or "").strip().splitlines() or [""])[0]
    METHODS[name] = Entry(name, title, strategy, meaning, part)


register(None, "Baselines", "None", "Plain training on one task after another: the lower bound.", name="none")
register(Offline, "Baselines", "Offline")
register(XdG, "Task-specific", "XdG")
register(Separate, "Task-specific", "Separate Networks")
register(EWC, "Regularization", "EWC")
register(OnlineEWC, "Regularization", "Online EWC")
register(SI, "Regularization", "SI")
register(MAS, "Regularization", "MAS")
register(FROMP, "Functional regularization", "FROMP")
register(LwF, "Replay", "LwF")
register(DGR, "Replay", "DGR")
register(DGRDistill, "Replay", "DGR+distill")
register(BIR, "Replay", "BI-R")
register(ICaRL, "Replay + Exemplars", "iCaRL")
register(ER, "Replay + Exemplars", "ER")
register(AGEM, "Replay + Exemplars", "A-GEM")
register(GEM, "Replay + Exemplars", "GEM")
register(DER, "Replay + Exemplars", "DER")
register(DERpp, "Replay + Exemplars", "DER++")
register(GenerativeClassifier, "Generative", "Generative Classifier")


def parse(text: str) -> Method:
    """Parse a method such as `ewc:strength=100+xdg:share=0.5`."""
    parts = [_part(piece) for piece in split_parts(text)]
    return Method(*(part for part in parts if part is not None))


def split_parts(text: str) -> list[str]:
    """Split at plus signs that precede a letter: 1e+7 is a number."""
    return re.split(r"\+(?=[A-Za-z])", text)


def _part(text: str) -> Part | None:
    return build(*pairs_of(text, "method"))


def build(name: str, given: Mapping[str, Any]) -> Part | None:
    """A part with its hyperparameters checked; None for the method without parts."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    part = METHODS[name].part
    if part is None:
        if given:
            raise ThreefoldError(f"method '{name}' has no hyperparameters, but '{min(given)}' was given.")
        return None
    check_keys(part, "method", given)
    return part(**given)

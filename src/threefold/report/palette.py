"""Colours that colour-blind readers can distinguish, in print and on screen."""

from collections.abc import Sequence

# Okabe & Ito (2008), without yellow, which is too light for a line
HUES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#555555")
ON_DARK = ("#4FA9E2", "#F0803C", "#2CC79B", "#E29BC4", "#8CD0F5", "#F3BC4A", "#AAAAAA")

STRATEGIES = {"Baselines": 6, "Task-specific": 3, "Regularization": 5, "Replay": 4}
"""Colours of the methods that appear as horizontal lines; the curves before them have the first four hues."""

# from dark to light, after cividis (Nuñez et al., 2018): the order is visible without colour, too
RAMP: Sequence[tuple[int, int, int]] = (
    *((0, 34, 78), (18, 53, 112), (59, 73, 108), (87, 92, 109), (112, 113, 115)),
    *((138, 134, 120), (165, 156, 116), (195, 179, 105), (225, 204, 85), (254, 232, 56)),
)


# the same from viridis (Smith & van der Walt, 2015), whose hues differ more: for lines close to each other
LINES: Sequence[tuple[int, int, int]] = (
    *((68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142)),
    *((31, 158, 137), (53, 183, 121), (110, 206, 88), (181, 222, 43), (253, 231, 37)),
)


def ramp(place: float, colors: Sequence[tuple[int, int, int]] = RAMP) -> str:
    """The colour at a position between 0 (dark) and 1 (light)."""
    at = min(max(place, 0.0), 1.0) * (len(colors) - 1)
    low = min(int(at), len(colors) - 2)
    mixed: Sequence[float] = [a + (b - a) * (at - low) for a, b in zip(colors[low], colors[low + 1], strict=True)]
    return "#" + "".join(f"{round(channel):02x}" for channel in mixed)


def legible_on(place: float) -> str:
    """The text colour that is legible on that colour."""
    return "#ffffff" if place < 0.55 else "#1a1a1a"

"""Speed, as ratios: a training step beside the same networks one by one, and beside what the hardware could do."""

from threefold.bench.accuracy import Compared, compare
from threefold.bench.floor import Floor, Rates, floor_of, rates
from threefold.bench.grid import GridTime, bench_grid
from threefold.bench.growth import Grown, grow
from threefold.bench.profile import Spent, spent
from threefold.bench.steps import Cost, NetworkTiming, Timing, bench, bench_methods, bench_networks

__all__ = [
    "Compared",
    "Cost",
    "Floor",
    "GridTime",
    "Grown",
    "NetworkTiming",
    "Rates",
    "Spent",
    "Timing",
    "bench",
    "bench_grid",
    "bench_methods",
    "bench_networks",
    "compare",
    "floor_of",
    "grow",
    "rates",
    "spent",
]

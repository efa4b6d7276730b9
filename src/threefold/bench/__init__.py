"""Speed, as ratios: a training step beside the same networks one by one, and beside what the hardware could do."""

from threefold.bench.floor import Floor, Rates, floor_of, rates
from threefold.bench.grid import Beside, bench_grid
from threefold.bench.growth import Grown, grow
from threefold.bench.steps import Cost, Timing, bench, bench_methods

__all__ = [
    "Beside",
    "Cost",
    "Floor",
    "Grown",
    "Rates",
    "Timing",
    "bench",
    "bench_grid",
    "bench_methods",
    "floor_of",
    "grow",
    "rates",
]

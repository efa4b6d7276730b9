"""Speed, as ratios: a training step compared with the same networks one by one, and with the limits of the hardware."""

from threefold.bench.accuracy import compare
from threefold.bench.evaluation import bench_evaluation
from threefold.bench.grid import bench_grid
from threefold.bench.growth import grow, host_work
from threefold.bench.profile import spent
from threefold.bench.steps import bench, bench_methods, bench_networks

__all__ = [
    "bench",
    "bench_evaluation",
    "bench_grid",
    "bench_methods",
    "bench_networks",
    "compare",
    "grow",
    "host_work",
    "spent",
]

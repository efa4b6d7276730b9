"""Results: records of runs, the store that keeps them, metrics, statistics, and the published numbers.

Accuracies are in per cent, as in the paper. Nothing here trains, and importing this package does not load torch.
"""

from threefold.results.curve import Curve
from threefold.results.kept_networks import KeptNetworks, beside, load_kept
from threefold.results.merge import by_key, joint_command, merge, together
from threefold.results.metrics import register_metric
from threefold.results.packed import pack, shown_images, unpack
from threefold.results.published import FIRST, SUCCESSOR, Outcome, Published, Verdict, lookup, published_cells, verdict
from threefold.results.record import Record, run_key, utc_now
from threefold.results.rows import Rows, is_rows, write_rows
from threefold.results.seed import Ordered, Seed, in_spec, read_seed, seed_of, united
from threefold.results.statistics import (
    Best,
    Comparison,
    Difference,
    Paired,
    Summary,
    best,
    compare_all,
    paired,
    summarize,
)
from threefold.results.store import Store

__all__ = [
    "FIRST",
    "SUCCESSOR",
    "Best",
    "Comparison",
    "Curve",
    "Difference",
    "KeptNetworks",
    "Ordered",
    "Outcome",
    "Paired",
    "Published",
    "Record",
    "Rows",
    "Seed",
    "Store",
    "Summary",
    "Verdict",
    "beside",
    "best",
    "by_key",
    "compare_all",
    "in_spec",
    "is_rows",
    "joint_command",
    "load_kept",
    "lookup",
    "merge",
    "pack",
    "paired",
    "published_cells",
    "read_seed",
    "register_metric",
    "run_key",
    "seed_of",
    "shown_images",
    "summarize",
    "together",
    "united",
    "unpack",
    "utc_now",
    "verdict",
    "write_rows",
]

"""What was measured: records of runs, the store that keeps them, metrics, statistics, and the published numbers.

Accuracies are in per cent, as in the paper. Nothing here trains, and importing it does not load torch.
"""

from threefold.results.merge import Merged, merge, together
from threefold.results.metrics import (
    average_accuracy,
    backward_transfer,
    forgetting,
    forward_transfer,
    learning_accuracy,
    measure,
)
from threefold.results.published import Outcome, Published, Verdict, lookup, published_cells, verdict
from threefold.results.record import Record, pack, run_key, square_images, unpack, utc_now
from threefold.results.rows import Rows, is_rows, write_rows
from threefold.results.statistics import (
    Comparison,
    Difference,
    Estimate,
    Paired,
    Summary,
    compare_all,
    holm,
    mean_sem,
    paired,
    summarize,
    welch,
)
from threefold.results.store import Store

__all__ = [
    "Comparison",
    "Difference",
    "Estimate",
    "Merged",
    "Outcome",
    "Paired",
    "Published",
    "Record",
    "Rows",
    "Store",
    "Summary",
    "Verdict",
    "average_accuracy",
    "backward_transfer",
    "compare_all",
    "forgetting",
    "forward_transfer",
    "holm",
    "is_rows",
    "learning_accuracy",
    "lookup",
    "mean_sem",
    "measure",
    "merge",
    "pack",
    "paired",
    "published_cells",
    "run_key",
    "square_images",
    "summarize",
    "together",
    "unpack",
    "utc_now",
    "verdict",
    "welch",
    "write_rows",
]

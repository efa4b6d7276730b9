"""`precision` applies to convolutions and matrix products, during training only."""

import pytest
import torch
from torch.backends import cudnn

from threefold.engine.train import precise


@pytest.fixture(autouse=True)
def _as_before():
    yield
    cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("matmul", ["highest", "high"])
@pytest.mark.parametrize(("precision", "tf32"), [("fp32", False), ("tf32", True)])
def test_convolutions_round_as_products_do(precision, tf32, before, matmul):
    cudnn.allow_tf32 = before
    torch.set_float32_matmul_precision(matmul)
    with precise(precision):
        assert cudnn.allow_tf32 is tf32
        assert torch.backends.cuda.matmul.allow_tf32 is tf32
    assert cudnn.allow_tf32 is before
    assert torch.get_float32_matmul_precision() == matmul


def test_what_was_set_by_operator_is_set_back():
    cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = "ieee", "tf32"
    with precise("tf32"):
        assert cudnn.allow_tf32
    assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == ("ieee", "tf32")

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Networks this small gain nothing from a second thread, and on a busy machine wait for it fifty times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)

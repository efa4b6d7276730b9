import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def _one_thread_in_float64():
    """Networks this small gain nothing from a second thread.

    And where the default is float64, all that the engine makes is float64: what is compared here agrees to ten digits
    or is wrong.
    """
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)

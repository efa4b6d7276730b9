import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def _in_float64():
    """Where the default is float64, all that the engine makes is: what is compared agrees to ten digits or is wrong."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(dtype)

import pytest

from threefold.engine import sharing


@pytest.fixture
def stacks(monkeypatch):
    """All stacks that are built: those with an optimiser are trained."""
    built, build = [], sharing.ReplicaStack

    def watched(*args):
        built.append(build(*args))
        return built[-1]

    monkeypatch.setattr(sharing, "ReplicaStack", watched)
    return built

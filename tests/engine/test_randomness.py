"""Draws are addressed: the same address gives the same draws, whatever was drawn before."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from threefold.randomness import generator


def draw(*address, n=8):
    return torch.rand(n, generator=generator(*address))


addresses = st.tuples(
    st.integers(-(2**70), 2**70), st.sampled_from(["batches", "weights", "classes"]), st.integers(0, 50)
) | st.tuples(st.integers(0, 50), st.text(max_size=8), st.integers(0, 50), st.integers(0, 50))


@given(addresses)
def test_the_same_address_gives_the_same_draws(address):
    assert torch.equal(draw(*address), draw(*address))


@given(addresses, addresses)
def test_different_addresses_give_different_draws(one, other):
    assert torch.equal(draw(*one), draw(*other)) is (one == other)


HERE = (3, "batches", 1, 2)


@pytest.mark.parametrize(
    "there",
    [
        (4, "batches", 1, 2),
        (-3, "batches", 1, 2),
        (3 + 2**32, "batches", 1, 2),
        (3 + 2**64, "batches", 1, 2),
        (3, "batch", 1, 2),
        (3, "batches ", 1, 2),
        (3, "batches", 2, 2),
        (3, "batches", 1, 3),
        (3, "batches", 2, 1),
        (3, "batches", 1),
        (3, "batches", 12),
        (3, "batches"),
        (3, "batches", 1, 2, 0),
        (1, "batches", 3, 2),
        (31, "batches", 2),
    ],
    ids=str,
)
def test_every_component_counts(there):
    assert not (draw(*HERE) == draw(*there)).any()


def test_a_thousand_addresses_give_a_thousand_draws():
    firsts = {
        tuple(draw(seed, purpose, task).tolist()) for seed in range(20) for purpose in "abcde" for task in range(10)
    }
    assert len(firsts) == 1000


def test_other_draws_change_nothing():
    undisturbed = draw(*HERE)
    torch.rand(17)
    draw(3, "batches", 1, 1, n=1000)
    used = generator(*HERE)
    torch.rand(3, generator=used)
    assert torch.equal(draw(*HERE), undisturbed)
    assert not torch.equal(torch.rand(8, generator=used), undisturbed)


def test_addressed_draws_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    draw(*HERE)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_an_address_gives_never_changes():
    """Stored results and checkpoints stand on these numbers."""
    assert generator(1, "classes").initial_seed() % 2**64 == 14973499246080766766
    assert generator(20, "batches", 4).initial_seed() % 2**64 == 3692168765285833181

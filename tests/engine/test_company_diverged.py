"""What diverges in one crew is marked where it counts, and leaves the others alone."""

import torch
from company_lab import SCENARIOS, Critic, alone, crew, same, together
from tiny_cohorts import Burden

from threefold.methods import DGR, ER, Part, hyper


def test_a_classifier_that_diverges_leaves_other_crews_alone():
    """Here it is the one beside the generator that all are lent."""
    wild = [DGR() + Burden(strength=strength) for strength in (1e30, 0)]
    crews = [crew("class", *wild), crew("task", "dgr"), crew("domain", "dgr-distill")]
    outcomes = together(crews)
    assert [seen.outcome.diverged_at for seen in outcomes] == [[1, None], [None, None], [None, None]]
    same(outcomes, alone(crews))


def test_a_generator_that_diverges_marks_all_that_were_lent_it():
    crews = [crew(scenario, "dgr", lr=[1e-2, 1e30]) for scenario in SCENARIOS] + [crew("class", "none")]
    outcomes = together(crews)
    assert [seen.outcome.diverged_at for seen in outcomes] == [[None, 0]] * 3 + [[None, None]]
    same(outcomes, alone(crews))


class Exploding(Critic):
    """Its own network diverges, in the second task, and no classifier does."""

    name = "exploding"

    def penalty(self, params, memory):
        return None

    def side_loss(self, learner, batch, replay, drawn):
        wild = torch.where(learner.now.seen > 1, torch.inf, 1.0)
        return super().side_loss(learner, batch, replay, drawn) * torch.where(self.rate > 1, wild, 1.0)


def test_a_network_beside_that_diverges_marks_the_replicas_of_all_crews():
    parts = [Exploding(rate=1.0), Exploding(rate=2.0)]
    crews = [crew(scenario, *parts) for scenario in SCENARIOS]
    outcomes = together(crews)
    assert [seen.outcome.diverged_at for seen in outcomes] == [[None, 1]] * 3
    same(outcomes, alone(crews))


class Shouting(Part):
    """From the second task on its loss may be infinite, and no weight is."""

    name = "shouting"
    volume: float = hyper("above 0: infinite", 0.0)

    def penalty(self, params, memory):
        return torch.where(self.volume > 0, torch.inf, 0.0)


def test_a_loss_that_is_not_finite_marks_every_view():
    parts = [Shouting(volume=1.0), Shouting(volume=0.0)]
    crews = [crew("class", *parts), crew("class", *(part + ER(budget=6, use="execution") for part in parts))]
    outcomes = together(crews)
    assert [seen.outcome.diverged_at for seen in outcomes] == [[1, None]] * 2
    same(outcomes, alone(crews))

"""Herding as the paper has it, one distance at a time."""

import numpy as np


def distances(found, chosen):
    """‖μ − (ψ(x) + Σ_{j<n} ψ(p_j)) / n‖ for every sample that is not yet chosen, one distance at a time."""
    n, mean = len(chosen) + 1, found.mean(0)
    return {
        place: np.linalg.norm(mean - (found[place] + sum(found[p] for p in chosen)) / n)
        for place in range(len(found))
        if place not in chosen
    }


def argmin_by_the_paper(found, count):
    """p_n, for n = 1, …, m."""
    chosen = []
    for _ in range(count):
        left = distances(found, chosen)
        chosen.append(min(left, key=left.get))
    return chosen

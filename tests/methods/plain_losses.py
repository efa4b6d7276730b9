"""One network at a step of replay, with every loss written out: what the objectives are compared with."""

import torch
from plain_network import competing, cross_entropy, gradient, log_chance, logits
from tiny_cohorts import copied, of
from tiny_stack import CLOSE, TinyStack, near
from torch.nn.functional import binary_cross_entropy

BATCH = 13  # not a multiple of the earlier tasks


def at_task(method, scenario, task, kind="split", **also):
    """A cohort at the second step of a task, the copies of its networks from the end of the task before, and draws."""
    tiny = TinyStack(kind, scenario, method, batch=BATCH, **also).reach(task - 1)
    tiny.train()
    teacher = copied(tiny.params)
    tiny.finish()
    tiny.begin(task)
    tiny.train(2)  # away from the copies
    return tiny, teacher, *next(tiny.draws(1))


# the pieces, one network


def teacher_units(tiny, task):
    """The units that targets are over: those active for this task one task ago (section A.1)."""
    return competing(tiny.scenario, task, tiny.task, tiny.classes)


def active_units(tiny, task):
    return competing(tiny.scenario, task, tiny.task + 1, tiny.classes)


def scores(tiny, replica, params, x, task):
    rows = [logits(params, row, tiny.gates(replica, t)) for row, t in zip(x, task, strict=True)]
    return torch.stack(rows)


def classified(tiny, replica, params, x, y, task):
    rows = scores(tiny, replica, params, x, task)
    return cross_entropy(rows, [active_units(tiny, int(t)) for t in task], y)


def distilled(tiny, replica, params, x, soft, task, temperature, reduction):
    losses = []
    for row, probabilities, t in zip(scores(tiny, replica, params, x, task), soft, task, strict=True):
        units = active_units(tiny, int(t))
        log = log_chance(row, units, temperature)
        loss = -(temperature**2) * sum(probabilities[u] * log[u] for u in units if u in probabilities)
        losses.append(loss / len(units) if reduction == "mean" else loss)
    return torch.stack(losses).mean()


def soft_targets(tiny, replica, teacher, x, task, temperature):
    """For each sample a probability for each unit that was active; no other has one."""
    targets = []
    for row, t in zip(scores(tiny, replica, teacher, x, task), task, strict=True):
        log = log_chance(row, teacher_units(tiny, int(t)), temperature)
        targets.append({unit: float(torch.exp(value)) for unit, value in log.items()})
    return targets


def hard_targets(tiny, replica, teacher, x, task):
    rows = scores(tiny, replica, teacher, x, task)
    return [max(teacher_units(tiny, int(t)), key=lambda unit: row[unit]) for row, t in zip(rows, task, strict=True)]


def mlp(params, x, *names):
    """Layers with ReLU between them, the last one linear."""
    for depth, name in enumerate(names):
        x = x @ params[f"{name}.weighted.weight"].T + params[f"{name}.shift.bias"]
        if depth < len(names) - 1:
            x = torch.clamp(x, min=0)
    return x


def dreams(generator, z):
    return torch.sigmoid(mlp(generator, z, "decoder.layers.0", "decoder.layers.1", "pixels"))


def generative(params, x, noise):
    """Reconstruction and latent term of the VAE (equations 11 to 13), per pixel, averaged over samples."""
    x = x.flatten(1)
    mean, log_variance = (
        mlp(params, x, "encoder.layers.0", "encoder.layers.1", out) for out in ("mean", "log_variance")
    )
    sigma = torch.exp(0.5 * log_variance)
    decoded = dreams(params, mean + sigma * noise)
    recon = binary_cross_entropy(decoded, x, reduction="sum")
    latent = 0.5 * (1 + 2 * torch.log(sigma) - mean**2 - sigma**2).sum()
    return (recon - latent) / x.numel()


def earlier_tasks(tiny):
    """Replays are shared equally over the earlier tasks."""
    return [i % tiny.task for i in range(BATCH)]


def replayed_in(tiny, replayed_for):
    """The tasks of all replayed samples; or, if each is for every earlier task, once for each of these."""
    return [earlier_tasks(tiny)] if replayed_for == "one" else [[task] * BATCH for task in range(tiny.task)]


def agrees(tiny, batch, drawn, total):
    """`total(replica, params)` is the loss of one network and its gradient is the one that is stepped along."""
    loss, grads = tiny.gradients(batch, drawn)
    for replica in range(len(tiny.seeds)):
        expected, slopes = gradient(lambda params, replica=replica: total(replica, params), of(tiny.params, replica))
        assert abs(loss[replica] - expected) < CLOSE
        assert near(of(grads, replica), slopes)

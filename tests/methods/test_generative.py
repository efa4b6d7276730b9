"""The Generative Classifier against one VAE, one optimiser and one sum over samples at a time, in float64."""

import math

import pytest
import torch
from plain_losses import generative, mlp
from tiny_cohorts import copied, furthest, tiny_data
from tiny_stack import TinyStack, near, setting_of
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

from threefold.methods.generative import GenerativeClassifier
from threefold.networks import VAE, Likelihood, initial_params, vae
from threefold.streams import Split

STEPS, RATES = 9, [1e-2, 3e-3, 0.1]
METHODS = [f"generative-classifier:hidden=6,latent=3,samples=7,lr={rate}" for rate in RATES]
ENCODER, DECODER = (["encoder.layers.0", "encoder.layers.1"], ["decoder.layers.0", "decoder.layers.1", "pixels"])


def draws_of(tiny, steps):
    """The batch and noise of each step, and whose turn it is."""
    found = []
    for _, drawn in tiny.draws(steps):
        own, noise = (drawn[f"generative-classifier {what}"] for what in ("own", "noise"))
        assert (own.y == own.y[:, :1]).all(), "a batch of one class"
        found.append((own, noise))
    return found


@pytest.mark.parametrize("kind", ["split", "permuted"])
def test_each_class_has_a_vae_and_an_optimiser_of_its_own(kind):
    tiny = TinyStack(kind, "class", METHODS)
    name, classes, before = "generative-classifier", tiny.classes, copied(tiny.params["classifier"])
    begins = copied(tiny.memory(name)["vaes"])
    for task in range(tiny.stream.tasks):
        if task:
            tiny.begin(task)
        draws = draws_of(tiny, STEPS)
        tiny.train(STEPS)
        losses = tiny.stack.loss.clone()
        tiny.finish()
        for replica in range(3):
            for unit in range(task * classes, (task + 1) * classes):
                params = {n: p[replica, unit].clone().requires_grad_() for n, p in begins.items()}
                adam = torch.optim.Adam(params.values(), lr=RATES[replica], foreach=False)
                turns = [(own, noise) for own, noise in draws if own.y[replica, 0] == unit]
                assert len(turns) in (STEPS // classes, STEPS // classes + 1)
                for own, noise in turns:
                    indices = own.indices[replica].tolist()
                    assert {task * classes + tiny.label(replica, index, task) for index in indices} == {unit}
                    x = torch.stack([tiny.inputs(replica, index, task) for index in indices])
                    loss = generative(params, x, noise[replica])
                    adam.zero_grad()
                    loss.backward()
                    adam.step()
                mine = {n: p[replica, unit] for n, p in tiny.memory(name)["vaes"].items()}
                assert near(mine, {n: p.detach() for n, p in params.items()}, 1e-8)
                if draws[-1][0].y[replica, 0] == unit:
                    assert abs(losses[replica] - loss.detach()) < 1e-10
    assert furthest(tiny.params["classifier"], before) == 0


def log_likelihood(params, pixels, noise):
    """log 1/S Σ_s p(x|z_s) p(z_s) / q(z_s|x), one importance sample at a time, without what is the same for all."""
    x = pixels.flatten()[None]
    mean, log_variance = (mlp(params, x, *ENCODER, out)[0] for out in ("mean", "log_variance"))
    terms = []
    for epsilon in noise:
        sigma = torch.exp(log_variance / 2)
        z = mean + sigma * epsilon
        decoded = torch.sigmoid(mlp(params, z[None], *DECODER)[0])
        prior, proposal = torch.distributions.Normal(0.0, 1.0), torch.distributions.Normal(mean, sigma)
        terms.append(-0.5 * ((x[0] - decoded) ** 2).sum() + prior.log_prob(z).sum() - proposal.log_prob(z).sum())
    return torch.logsumexp(torch.stack(terms), 0) - math.log(len(noise))


def test_a_sample_is_of_the_class_that_makes_it_likeliest():
    """In the middle of the second task: classes before as they ended, now as they are, none of those to come."""
    tiny = TinyStack("split", "class", METHODS).reach(1)
    tiny.train(4)
    memory, x = tiny.memory("generative-classifier"), tiny.stream.data.test_x[:8]
    for seen in (2, 3):
        active = torch.arange(6) < 2 * seen
        with torch.no_grad():
            chosen = tiny.stack.predict(x.expand(3, *x.shape), torch.tensor(0), active)
            scores = tiny.stack.map(lambda learner, x: learner.parts[0].scores(learner, x, None), x.expand(3, *x.shape))
        for replica in range(3):
            vaes = {n: p[replica].clone() for n, p in memory["vaes"].items()}
            for name, each in vaes.items():
                each[2:4] = memory["live"][name][replica]
            expected = [
                [
                    log_likelihood({n: p[unit] for n, p in vaes.items()}, one, memory["noise"][replica])
                    for unit in range(4)
                ]
                for one in x
            ]
            assert near(scores[replica, :, :4], torch.tensor(expected))
            assert (scores[replica, :, 4:] == -torch.inf).all()
            assert torch.equal(chosen[replica], torch.tensor(expected).argmax(-1))


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor of inputs × samples × units."""

    numbers = 0

    @classmethod
    def _should_skip_dynamo(cls):
        """Else PyTorch imports its compiler, which takes seconds."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.dim() == 3:
            self.numbers = max(self.numbers, out.numel())
        return out


@pytest.mark.parametrize(("layers", "binary"), [(1, False), (1, True), (2, False), (2, True)])
def test_the_pieces_make_no_difference_and_are_small(layers, binary, monkeypatch):
    """Many samples and inputs, in pieces of any size: the same, and only a piece of them is ever in memory at once."""
    net = VAE(16, 5, 3, layers=layers, binary=binary)
    params = {n: 3 * p for n, p in initial_params(net, torch.Generator().manual_seed(0)).items()}
    x, noise = torch.randn(11, 16), torch.randn(100, 3)
    found = []
    for room in (1 << 20, 700, 90, 1):
        monkeypatch.setattr(vae, "AT_ONCE", {True: room, False: room})
        with Largest() as seen:
            found.append(functional_call(Likelihood(net), params, (x, noise)))
        assert seen.numbers <= max(room, 4 * 5 if binary else 8 * 8)
    for other in found[1:]:
        assert near(other, found[0], 1e-12)
    if not binary:  # against the sum over inputs, which the product of weights stands for
        hidden = ["layers.0", "layers.1"][:layers]
        for pixels, value in zip(x, found[0], strict=True):
            encoder, decoder = ([f"{half}.{each}" for each in hidden] for half in ("encoder", "decoder"))
            mean, log_variance = (mlp(params, pixels[None], *encoder, out)[0] for out in ("mean", "log_variance"))
            z = mean + torch.exp(log_variance / 2) * noise
            error = ((pixels - mlp(params, z, *decoder, "pixels")) ** 2).sum(-1)
            terms = -0.5 * error + 0.5 * (noise**2 - z**2 + log_variance).sum(-1)
            assert abs(value - torch.logsumexp(terms, 0) + math.log(100)) < 1e-9


def test_a_loss_of_numbers_is_half_their_squared_error_and_the_latent_term():
    net = VAE(16, 5, 3, layers=1, binary=False)
    params = initial_params(net, torch.Generator().manual_seed(0))
    x, noise = torch.randn(6, 16), torch.randn(6, 3)
    mean, log_variance = (mlp(params, x, "encoder.layers.0", out) for out in ("mean", "log_variance"))
    decoded = mlp(params, mean + torch.exp(log_variance / 2) * noise, "decoder.layers.0", "pixels")
    latent = 0.5 * (log_variance.exp() + mean**2 - 1 - log_variance).sum(-1)
    assert near(functional_call(net, params, (x, noise)), (0.5 * ((x - decoded) ** 2).sum(-1) + latent) / 16)


def test_it_learns_and_does_not_forget():
    data = Split(tiny_data(base=60, dtype=torch.float64), 3)
    tiny = TinyStack(data, "class", "generative-classifier:hidden=16,lr=0.01", [1, 2])
    accuracies = []
    for task in range(3):
        if task:
            tiny.begin(task)
        tiny.train(160)
        tiny.finish()
        index = [torch.cat([each.test for each in tasks]) for tasks in tiny.sequences]
        x = torch.stack([tiny.stream.data.test_x[own] for own in index])
        chosen = tiny.stack.predict(x, torch.tensor(0), torch.ones(6, dtype=torch.bool))
        labels = [tiny.stream.data.test_y[own].tolist() for own in index]
        units = [[c for task in tasks for c in task.classes] for tasks in tiny.sequences]
        right = [[own.index(label) for label in each] for own, each in zip(units, labels, strict=True)]
        accuracies.append((chosen == torch.tensor(right)).double().mean())
    assert accuracies[-1] > 0.8


def test_it_is_refused_where_not_all_classes_compete():
    part = GenerativeClassifier()
    for scenario in ("task", "domain", "hidden"):
        assert "needs all tasks' classes to compete" in part.refuse(setting_of(scenario))
    assert "in this stream none does" in part.refuse(setting_of("class", tasks_end=False))
    assert (part.hidden, part.layers, part.latent, part.samples, part.lr) == (85, 2, 5, 50, 0.001)

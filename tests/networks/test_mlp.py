"""The classifier against the same sums written out in float64."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from threefold.errors import ThreefoldError
from threefold.networks import MLP, Structure, initial_params
from threefold.networks.layers import Layer

INPUTS, HIDDEN, UNITS = 9, 7, 5
CLOSE = 1e-6  # float32 against float64, sums of ten products below 1


def drawn(seed=0):
    net = MLP(INPUTS, HIDDEN, UNITS)
    return net, initial_params(net, torch.Generator().manual_seed(seed))


def batch(samples=6):
    return torch.rand(samples, INPUTS, generator=torch.Generator().manual_seed(1))


def by_hand(params, x, gates=None, gate_on="activation"):
    """One sample, one unit after the other. A gate of zero silences the activation, or the weighted input only."""
    values = {name: p.double().numpy() for name, p in params.items()}
    layers = ["features.layers.0", "features.layers.1", "output"]
    for depth, layer in enumerate(layers):
        weight, bias = values[f"{layer}.weighted.weight"], values[f"{layer}.shift.bias"]
        out = np.empty(len(bias))
        for unit in range(len(bias)):
            weighted = sum(w * v for w, v in zip(weight[unit], x, strict=True))
            hidden = layer != "output"
            gate = gates[depth][unit] if hidden and gates is not None else 1.0
            if gate_on == "input":
                weighted *= gate
            out[unit] = weighted + bias[unit]
            if hidden:
                out[unit] = max(out[unit], 0.0)
                if gate_on == "activation":
                    out[unit] *= gate
        x = out
    return x


def test_the_forward_pass_is_the_one_written_by_hand():
    net, params = drawn()
    x = batch()
    expected = np.stack([by_hand(params, row) for row in x.double().numpy()])
    got = functional_call(net, params, (x,)).double().numpy()
    assert got.shape == (6, UNITS)
    assert np.abs(got - expected).max() < CLOSE
    assert expected.std() > 0.05


def gated(net, params, x, gates, on="activation"):
    with Structure.of(net, "mlp", (INPUTS,), UNITS, "cpu").gated(net, gates, on):
        return functional_call(net, params, (x,))


@pytest.mark.parametrize("gate_on", ["activation", "input"])
def test_gates_are_those_written_by_hand(gate_on):
    net, params = drawn()
    x = batch()
    gates = [torch.tensor([1.0, 0, 1, 0, 0, 1, 1]), torch.tensor([0.0, 1, 1, 0, 1, 0, 1])]
    rows = x.double().numpy()
    expected = np.stack([by_hand(params, row, gates, gate_on) for row in rows])
    got = gated(net, params, x, gates, gate_on).double().numpy()
    assert np.abs(got - expected).max() < CLOSE
    other = "input" if gate_on == "activation" else "activation"
    for wrong in (by_hand(params, rows[0], gates, other), by_hand(params, rows[0])):
        assert np.abs(got[0] - wrong).max() > 1000 * CLOSE
    ungated = functional_call(net, params, (x,)).double().numpy()  # the gates are gone with their context
    assert np.abs(ungated - np.stack([by_hand(params, row) for row in rows])).max() < CLOSE


def test_a_zero_gate_silences_the_activation_or_leaves_the_bias():
    net, params = drawn()
    structure = Structure.of(net, "mlp", (INPUTS,), UNITS, "cpu")
    shut = [torch.zeros(HIDDEN), torch.zeros(HIDDEN)]
    bias = params["features.layers.1.shift.bias"].clamp(min=0)
    for gate_on, expected in (("activation", torch.zeros(HIDDEN)), ("input", bias)):
        with structure.tapped(net) as tapped, structure.gated(net, shut, gate_on):
            functional_call(net, params, (batch(),))
        assert torch.equal(tapped[0], expected.expand(6, HIDDEN))


def test_gates_may_differ_between_samples():
    net, params = drawn()
    x = batch()
    gates = [torch.randint(0, 2, (6, HIDDEN), generator=torch.Generator().manual_seed(d)).float() for d in (3, 4)]
    got = gated(net, params, x, gates).double().numpy()
    for sample, row in enumerate(x.double().numpy()):
        assert np.abs(got[sample] - by_hand(params, row, [g[sample] for g in gates])).max() < CLOSE


def test_initial_params_name_every_parameter_of_the_net():
    net, params = drawn()
    assert {name: p.shape for name, p in params.items()} == {name: p.shape for name, p in net.named_parameters()}
    assert all(p.dtype == torch.float32 for p in params.values())


FAN_IN = {"features.layers.0": 50, "features.layers.1": 40, "output": 40}


def test_initial_params_fill_the_interval_of_one_over_root_fan_in():
    """Weights and biases of one layer have the same bound, 1/√fan_in, and are uniform in it."""
    net = MLP(50, 40, 30)
    draws = [initial_params(net, torch.Generator().manual_seed(seed)) for seed in range(20)]
    for name in draws[0]:
        layer = name.removesuffix(".weighted.weight").removesuffix(".shift.bias")
        unit = np.concatenate([d[name].double().numpy().ravel() for d in draws]) * FAN_IN[layer] ** 0.5
        assert np.abs(unit).max() <= 1 + 1e-6
        assert unit.max() > 0.98
        assert unit.min() < -0.98
        n = len(unit)  # at least 600
        assert abs(unit.mean()) < 5 * (1 / 3 / n) ** 0.5
        assert abs((np.abs(unit) < 0.5).mean() - 0.5) < 5 * (0.25 / n) ** 0.5


def test_no_two_tensors_of_a_draw_are_the_same_numbers():
    """Layers of equal shape have draws of their own."""
    net = MLP(8, 8, 8)
    params = initial_params(net, torch.Generator().manual_seed(1))
    values = torch.cat([p.flatten() for p in params.values()])
    assert len(values.unique()) > 0.99 * len(values)


def test_initial_params_come_from_the_generator_alone():
    net = MLP(INPUTS, HIDDEN, UNITS)
    first = initial_params(net, torch.Generator().manual_seed(5))
    state = torch.get_rng_state()
    again = initial_params(MLP(INPUTS, HIDDEN, UNITS), torch.Generator().manual_seed(5))
    torch.set_rng_state(state)
    initial_params(net, torch.Generator().manual_seed(5))
    assert torch.equal(torch.get_rng_state(), state)
    other = initial_params(net, torch.Generator().manual_seed(6))
    for name in first:
        assert torch.equal(first[name], again[name])
        assert not torch.equal(first[name], other[name])


# networks of users: PyTorch's own layers


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(2, 6, 3), nn.GroupNorm(2, 6), nn.Flatten(), nn.Linear(18, 4), nn.LayerNorm(4)
        )
        self.head = Layer(4, 3)

    def forward(self, x):
        return self.head(self.body(x))


def test_pytorchs_own_layers_begin_in_the_same_range_and_from_the_generator_alone():
    with torch.device("meta"):
        net = Probe()
    params, again, other = (initial_params(net, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert {name: p.shape for name, p in params.items()} == {name: p.shape for name, p in net.named_parameters()}
    assert all(torch.equal(p, again[name]) for name, p in params.items())
    for name, fan_in in {"body.0": 6, "body.3": 18, "head": 4}.items():
        for p in (p for path, p in params.items() if path.startswith(f"{name}.")):
            assert 0.3 * fan_in**-0.5 < p.abs().max() <= fan_in**-0.5
    assert not torch.equal(params["body.3.weight"], other["body.3.weight"])
    for name in ("body.1", "body.4"):
        assert torch.equal(params[f"{name}.weight"], torch.ones_like(params[f"{name}.weight"]))
        assert torch.equal(params[f"{name}.bias"], torch.zeros_like(params[f"{name}.bias"]))
    assert functional_call(net, params, (torch.rand(5, 2, 5),)).shape == (5, 3)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))


def test_a_parameter_without_a_range_is_refused_by_name():
    with pytest.raises(ThreefoldError, match=r"^0\.scale of Sequential belongs to Scaled, .* use linear"):
        initial_params(nn.Sequential(Scaled()), torch.Generator())


def test_the_weights_of_batch_norm_begin_with_one_and_its_bias_with_zero():
    params = initial_params(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), torch.Generator())
    assert set(params) == {"0.weight", "0.bias", "1.weight", "1.bias"}  # running statistics are no parameters
    assert torch.equal(params["1.weight"], torch.ones(3))
    assert torch.equal(params["1.bias"], torch.zeros(3))


def test_tied_parameters_are_refused_by_name():
    layer = nn.Linear(3, 3)
    with pytest.raises(ThreefoldError, match=r"^1\.bias of Sequential is also another of its parameters"):
        initial_params(nn.Sequential(layer, layer), torch.Generator())

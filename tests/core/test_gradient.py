"""The gradient below a map against `torch.func`'s own, and against plain autograd."""

import pytest
import torch
from torch.func import grad, grad_and_value, vmap

from fedpn.core.gradient import gradient


def _objective(params, x, y):
    """Something with a matrix product, a shared parameter, a detached part and a new buffer."""
    hidden = torch.tanh(x @ params["w"] + params["b"])
    value = ((hidden.sum(-1) - y) ** 2).mean() + (hidden.detach() * params["b"]).sum()
    return value, {"seen": x.mean(0) + 0 * params["w"].detach().sum()}


@pytest.fixture
def clients():
    draw = torch.Generator().manual_seed(0)
    params = {"w": torch.randn(3, 4, 2, generator=draw), "b": torch.randn(3, 2, generator=draw)}
    return (
        {name: t.double() for name, t in params.items()},
        torch.randn(3, 5, 4, generator=draw).double(),
        torch.randn(3, 5, generator=draw).double(),
    )


def _reference(params, x, y):
    grads, (value, buffers) = grad_and_value(lambda p: _objective(p, x, y), has_aux=True)(params)
    return grads, value, buffers


def _ours(params, x, y):
    return gradient(lambda p: _objective(p, x, y), params)


def _equal(ours, reference):
    torch.testing.assert_close(ours, reference, rtol=1e-12, atol=1e-12)


def test_stacked_clients_have_each_their_own_gradient(clients):
    _equal(vmap(_ours)(*clients), vmap(_reference)(*clients))


def test_parameters_that_all_share_still_give_each_client_its_gradient(clients):
    params, x, y = clients
    shared = {"w": params["w"][0], "b": params["b"]}
    dims = ({"w": None, "b": 0}, 0, 0)
    _equal(vmap(_ours, dims)(shared, x, y), vmap(_reference, dims)(shared, x, y))


def test_stacks_may_lie_along_any_axis(clients):
    params, x, y = clients
    turned = {"w": params["w"].movedim(0, 2), "b": params["b"]}
    dims = ({"w": 2, "b": 0}, 0, 0)
    _equal(vmap(_ours, dims)(turned, x, y), vmap(_reference)(*clients))


def test_a_client_alone(clients):
    params, x, y = clients
    mine = {name: t[1] for name, t in params.items()}
    grads, value, buffers = _ours(mine, x[1], y[1])
    _equal((grads, value, buffers), _reference(mine, x[1], y[1]))
    assert not value.requires_grad and not buffers["seen"].requires_grad


def test_gradients_of_gradients_fall_to_torch_func(clients):
    params, x, y = clients

    def length(taken):
        def of(p, x, y):
            return sum((g**2).sum() for g in taken(p, x, y)[0].values())

        return vmap(grad(of))(params, x, y)

    _equal(length(_ours), length(_reference))


def test_what_the_objective_does_not_use_has_no_gradient(clients):
    params, x, y = clients
    more = params | {"idle": torch.ones(3, 7).double()}
    grads, _, _ = vmap(_ours)(more, x, y)
    assert grads["idle"].shape == (3, 7) and not grads["idle"].any()
    assert vmap(lambda x: gradient(lambda p: (x.sum(), {}), {}))(x)[0] == {}

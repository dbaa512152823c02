"""The native kernels against the eager forms, in float64 and float32, alone and mapped."""

import ctypes
import ctypes.util
import mmap
import os
import subprocess
import sys
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import grad, vmap

from fedpn.nn import kernels
from fedpn.nn.kernels import Radial, conv, eager, native, radial
from fedpn.nn.resnet import Conv3x3

needs_native = pytest.mark.skipif(
    native.build().library is None, reason=f"no native kernels here: {native.build().story}"
)
few = settings(max_examples=25, deadline=None)


def _random(seed, *shapes):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def _derivatives(f, inputs, *cotangents):
    """The outputs and the gradients of their products with the given cotangents."""
    inputs = [t.detach().requires_grad_() for t in inputs]
    outputs = f(*inputs)
    total = sum((y * g.to(y)).sum() for y, g in zip(outputs, cotangents, strict=True))
    return [*outputs, *torch.autograd.grad(total, inputs)]


def _error(value, right):
    return ((value.double() - right).norm() / right.norm().clamp(min=1e-30)).item()


def _assert_close(fast, slow, right, floor=2e-6):
    """Within 1e-5 of float64, and no further from it than twice as far as the eager form."""
    for ours, theirs, exact in zip(fast, slow, right, strict=True):
        assert ours.shape == exact.shape
        assert _error(ours, exact) <= min(1e-5, 2 * _error(theirs, exact) + floor)


# conv_relu_pool


def _conv(form):
    return lambda x, w, b: (form.conv_relu_pool(x, w, b),)


@st.composite
def images(draw):
    """A batch, filters and biases, and how the batch lies in memory."""
    k = draw(st.sampled_from([3, 5]))
    channels, filters = draw(st.integers(1, 32)), draw(st.integers(1, 32))
    size = [draw(st.integers(k + 1, k + 12)) for _ in range(2)]
    batch = draw(st.integers(1, 9))
    shapes = (batch, channels, *size), (filters, channels, k, k), (filters,)
    x, w, b = _random(draw(st.integers(0, 999)), *shapes)
    lie = draw(st.sampled_from(["contiguous", "channels last", "transposed", "every other"]))
    if lie == "channels last":
        x = x.contiguous(memory_format=torch.channels_last)
    elif lie == "transposed":
        x, w = x.transpose(2, 3), w.transpose(2, 3)
    elif lie == "every other":
        x = torch.stack([x, -x], -1).flatten(-2)[..., ::2]
    return x, w, b


@needs_native
@few
@given(images())
def test_conv_agrees_with_eager(inputs):
    assert conv.suits(*inputs)
    y = eager.conv_relu_pool(*inputs)
    (g,) = _random(1, y.shape)
    fast, slow = (_derivatives(_conv(form), inputs, g) for form in (conv, eager))
    # A float64 pass may find another corner the largest by a hair: then g goes elsewhere.
    exact = [t.double() for t in inputs]
    right = _derivatives(_conv(eager), exact, g)
    if _same_corners(inputs, exact):
        _assert_close(fast, slow, right)
    else:
        _assert_close(fast[:1], slow[:1], right[:1])


def _same_corners(inputs, exact):
    def corners(x, w, b):
        pooled, where = torch.nn.functional.max_pool2d(
            torch.nn.functional.conv2d(x, w, b), 2, return_indices=True
        )
        return where, pooled > 0

    return all(map(torch.equal, corners(*inputs), corners(*exact)))


@needs_native
def test_the_first_of_equals_wins():
    x = torch.randint(-1, 2, (4, 2, 11, 14)).float()  # small integers: sums are exact
    w, b = torch.randint(-1, 2, (9, 2, 3, 3)).float(), torch.tensor([0.0, 1, -1] * 3)
    g = torch.randint(-3, 4, (4, 9, 4, 6)).float()
    fast, slow = (_derivatives(_conv(form), (x, w, b), g) for form in (conv, eager))
    assert all(map(torch.equal, fast, slow))
    x, w = torch.zeros(1, 1, 28, 28), torch.randn(6, 1, 5, 5)  # an empty image: all are equal
    fast, slow = (
        _derivatives(_conv(form), (x, w, torch.ones(6)), torch.ones(1, 6, 12, 12))
        for form in (conv, eager)
    )
    torch.testing.assert_close(fast, slow)


@needs_native
def test_nan_is_seen():
    x, w, b = _random(0, (2, 3, 9, 9), (4, 3, 3, 3), (4,))
    x[0, 1, 4, 4] = float("nan")
    y = kernels.conv_relu_pool(x, w, b)
    torch.testing.assert_close(y, eager.conv_relu_pool(x, w, b), equal_nan=True)
    assert y[0].isnan().any()
    z, flows, labels = _flows(0, 3, 4, 5, 6)
    z[2] = float("nan")
    log_p, _ = kernels.label_log_prob(z, flows, labels)
    assert log_p.isnan().tolist() == [i == 2 for i in range(6)]


@needs_native
def test_conv_mapped_over_clients():
    x, w, b = _random(3, (3, 5, 2, 10, 9), (3, 7, 2, 3, 3), (3, 7))

    def loss(w, b, x):
        return kernels.conv_relu_pool(x, w, b).square().sum()

    _assert_mapped(loss, (w, b, x), clients=3)
    shared = vmap(grad(loss, argnums=(0, 1, 2)), in_dims=(None, 0, None))(w[0], b, x[0])
    for i in range(3):
        alone = grad(loss, argnums=(0, 1, 2))(w[0], b[i], x[0])
        torch.testing.assert_close([g[i] for g in shared], list(alone))


def _assert_mapped(loss, inputs, clients, argnums=(0, 1, 2)):
    """vmap(grad), grad of the sum of a vmap, and a loop over clients are the same."""
    alone = [grad(loss, argnums)(*(t[i] for t in inputs)) for i in range(clients)]
    together = vmap(grad(loss, argnums))(*inputs)
    summed = grad(lambda *ts: vmap(loss)(*ts).sum(), argnums)(*inputs)
    for i in range(clients):
        torch.testing.assert_close([g[i] for g in together], list(alone[i]))
        torch.testing.assert_close([g[i] for g in summed], list(alone[i]))


@needs_native
def test_maps_of_maps():
    x, w, b = _random(4, (2, 3, 4, 1, 8, 8), (2, 4, 1, 5, 5), (3, 4))
    inner = vmap(kernels.conv_relu_pool, in_dims=(0, None, 0))
    twice = vmap(inner, in_dims=(0, 0, None))(x, w, b)
    for i in range(2):
        for j in range(3):
            right = eager.conv_relu_pool(x[i, j], w[i], b[j])
            torch.testing.assert_close(twice[i, j], right)


@needs_native
def test_nothing_is_kept_without_gradients():
    x, w, b = _random(5, (2, 3, 12, 12), (4, 3, 5, 5), (4,))
    with torch.no_grad():
        y = kernels.conv_relu_pool(x, w, b)
    assert not y.requires_grad
    torch.testing.assert_close(y, eager.conv_relu_pool(x, w, b))


def test_what_does_not_suit_is_left_to_eager():
    x, w, b = _random(6, (2, 3, 12, 12), (4, 3, 5, 5), (4,))
    assert not conv.suits(x.double(), w.double(), b.double())
    assert not conv.suits(x.to("meta"), w.to("meta"), b.to("meta"))
    assert not conv.suits(x, torch.randn(4, 3, 4, 4), b)
    assert not conv.suits(x, torch.randn(33, 3, 5, 5), torch.randn(33))
    assert not conv.suits(x[..., :5], w, b)
    assert not conv.suits(x[:0], w, b)
    exact = (t.double() for t in (x, w, b))
    assert kernels.conv_relu_pool(*exact).dtype == torch.float64
    z, flows, labels = _flows(0, 3, 4, 5, 6)
    assert not radial.suits(z.double(), flows)
    assert not radial.suits(z[:0], flows)
    assert kernels.label_log_prob(z[:0], flows, labels[:0])[0].shape == (0,)


def test_what_does_not_fit_together_never_reaches_c():
    """Which would read beyond the ends: PyTorch refuses it instead."""
    x, w, b = _random(6, (2, 3, 12, 12), (4, 3, 5, 5), (4,))
    for misfit in ((x[:, :2], w, b), (x, w[:, :1], b), (x, w, b[:3]), (x, w[0], b), (x[0], w, b)):
        assert not conv.suits(*misfit)
    for misfit in ((x[:, :2], w, b), (x, w, b[:3])):
        with pytest.raises(RuntimeError):
            kernels.conv_relu_pool(*misfit)
    z, flows, _ = _flows(0, 3, 4, 5, 6)
    assert radial.suits(z, flows)
    assert not radial.suits(z[:, :2], flows)
    for name, cut in (("a", flows.a[:1]), ("s", flows.s[:, :1]), ("x0", flows.x0[:1])):
        assert not radial.suits(z, flows._replace(**{name: cut}))


# radial_log_prob


def _flows(seed, classes, layers, dim, rows):
    """Flows away from the identity, and rows near them."""
    shapes = (rows, dim), (classes, layers, dim), (classes, layers), (classes, layers)
    z, *flows = _random(seed, *shapes)
    labels = torch.randint(0, classes, (rows,), generator=torch.Generator().manual_seed(seed))
    return z, Radial(*flows), labels


def _label(form, labels):
    if form is radial:
        return lambda z, *flows: radial.radial_log_prob(z, Radial(*flows), labels)
    return lambda z, *flows: eager.radial_log_prob(z, Radial(*(p[labels] for p in flows)))


def _every(form):
    if form is radial:
        return lambda z, *flows: radial.radial_log_prob(z, Radial(*flows), None)
    return lambda z, *flows: eager.radial_log_prob(z.unsqueeze(-2), Radial(*flows))


@needs_native
@few
@given(
    seed=st.integers(0, 999),
    classes=st.integers(2, 200),
    layers=st.integers(1, 30),
    dim=st.integers(2, 64),
    rows=st.integers(1, 70),
    labelled=st.booleans(),
)
def test_flows_agree_with_eager(seed, classes, layers, dim, rows, labelled):
    z, flows, labels = _flows(seed, classes, layers, dim, rows if labelled else rows // 4 + 1)
    if seed % 2:
        z = z.t().contiguous().t()
    make = (lambda form: _label(form, labels)) if labelled else _every
    shape = (len(z),) if labelled else (len(z), classes)
    seen, blind = _random(seed + 1, shape, shape)
    fast, slow = (_derivatives(make(form), (z, *flows), seen, blind) for form in (radial, eager))
    exact = [t.double() for t in (z, *flows)]
    # A row's derivatives may nearly cancel: then either form may be closer, by luck.
    _assert_close(fast, slow, _derivatives(make(eager), exact, seen, blind), floor=4e-6)
    assert torch.equal(fast[0], fast[1])


@needs_native
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e4])
def test_flows_wherever_z_is(size):
    z, flows, labels = _flows(1, 4, 30, 16, 9)
    z = z.sign() * size
    flows.x0[:, 0] = z[0]  # the very centre of a layer
    fast = _derivatives(_label(radial, labels), (z, *flows), torch.ones(9), torch.ones(9))
    exact = [t.double() for t in (z, *flows)]
    right = _derivatives(_label(eager, labels), exact, torch.ones(9), torch.ones(9))
    for ours, theirs in zip(fast, right, strict=True):
        assert ours.isfinite().all()
        assert _error(ours, theirs) < 1e-5


@needs_native
def test_flows_mapped_over_clients():
    z, flows, labels = zip(*(_flows(seed, 4, 3, 5, 8) for seed in range(3)), strict=True)
    stacked = (torch.stack(z), *map(torch.stack, zip(*flows, strict=True)), torch.stack(labels))

    def label(z, x0, a, s, y):
        seen, blind = kernels.label_log_prob(z, Radial(x0, a, s), y)
        return seen.sin().sum() + blind.cos().sum()

    def every(z, x0, a, s, y):
        seen, blind = kernels.radial_log_prob(z.unsqueeze(-2), Radial(x0, a, s))
        return seen.sin().sum() + blind.cos().sum()

    for loss in (label, every):
        _assert_mapped(loss, stacked, clients=3, argnums=(0, 1, 2, 3))


@needs_native
def test_flows_round_no_more_than_eager():
    z, flows, labels = _flows(5, 10, 30, 16, 640)
    seen, blind = _random(6, (640,), (640,))
    inputs = (z, *flows)
    fast, slow = (
        _derivatives(_label(form, labels), inputs, seen, blind) for form in (radial, eager)
    )
    exact = [t.double() for t in inputs]
    right = _derivatives(_label(eager, labels), exact, seen, blind)
    for ours, theirs, true in zip(fast, slow, right, strict=True):
        assert _error(ours, true) < 1.2 * _error(theirs, true)


@needs_native
def test_a_label_that_no_flow_has_is_refused():
    z, flows, labels = _flows(0, 3, 2, 4, 5)
    with pytest.raises(IndexError, match="label"):
        kernels.label_log_prob(z, flows, labels + 1000)


# Both


def _everything():
    """Outputs and gradients of both operations, on a few clients."""
    x, w, b = _random(8, (3, 17, 2, 13, 12), (3, 10, 2, 5, 5), (3, 10))
    z, flows, labels = _flows(9, 10, 6, 16, 3 * 40)
    x0, a, s = (torch.stack([p, -p, p / 2]) for p in flows)

    def loss(w, b, x, z, x0, a, s, y):
        seen, blind = kernels.label_log_prob(z, Radial(x0, a, s), y)
        return kernels.conv_relu_pool(x, w, b).square().sum() + seen.sum() + blind.sin().sum()

    inputs = (w, b, x, z.reshape(3, 40, 16), x0, a, s, labels.reshape(3, 40))
    return vmap(grad(loss, argnums=tuple(range(7))))(*inputs)


@needs_native
@pytest.mark.parametrize("count", [1, 2, 3])
def test_threads_change_no_bit_from_run_to_run(count):
    one = _everything()
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        first, *others = (_everything() for _ in range(3))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))
    assert all(_error(a, b.double()) < 1e-5 for a, b in zip(first, one, strict=True))


@needs_native
def test_python_threads_may_call_at_once():
    right, results = _everything(), []
    callers = [threading.Thread(target=lambda: results.append(_everything())) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 3
    assert all(torch.equal(a, b) for r in results for a, b in zip(r, right, strict=True))


def test_off_is_eager(monkeypatch):
    x, w, b = _random(10, (2, 3, 12, 12), (4, 3, 5, 5), (4,))
    z, flows, labels = _flows(0, 3, 4, 5, 6)
    monkeypatch.setenv("FEDPN_KERNELS", "off")
    assert kernels.status() == "eager: FEDPN_KERNELS=off"
    assert torch.equal(kernels.conv_relu_pool(x, w, b), eager.conv_relu_pool(x, w, b))
    ours = kernels.label_log_prob(z, flows, labels)[0]
    gathered = Radial(*(p[labels] for p in flows))
    assert torch.equal(ours, eager.radial_log_prob(z, gathered)[0])


CALL = """
import pathlib
import torch
from fedpn.nn import kernels
from fedpn.nn.kernels import native
native.HERE = pathlib.Path("a package that brought no library")
print(kernels.conv_relu_pool(torch.ones(1, 1, 6, 6), torch.ones(2, 1, 3, 3), torch.zeros(2)).sum())
print(kernels.status())
"""
ASKED = {"FEDPN_KERNELS": "build"}


def _elsewhere(**environment):
    """What a fresh process prints, with another environment."""
    result = subprocess.run(
        [sys.executable, "-c", CALL],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.splitlines()


def test_a_machine_without_compiler_goes_on(tmp_path):
    total, status = _elsewhere(PATH=str(tmp_path), CC="", **ASKED)
    assert total == "tensor(72.)"
    assert status.startswith("eager: the package brought no library")
    assert "no C compiler" in status


def test_a_compiler_that_fails_is_named(tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho sorry >&2\nexit 1\n")
    compiler.chmod(0o755)
    total, status = _elsewhere(CC=str(compiler), XDG_CACHE_HOME=str(tmp_path), **ASKED)
    assert total == "tensor(72.)"
    assert "sorry" in status
    assert str(compiler) in status


@needs_native
@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect as Linux has it")
def test_nothing_is_read_beyond_its_end():
    """Places every tensor that C sees right before a page that nobody may touch."""
    pages = []

    def fence(t):
        """A copy that ends where a forbidden page begins."""
        size = t.numel() * t.element_size()
        page = mmap.PAGESIZE
        room = -(-size // page) * page
        memory = mmap.mmap(-1, room + page)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        libc = ctypes.CDLL(ctypes.util.find_library("c"))
        assert libc.mprotect(ctypes.c_void_p(address + room), page, 0) == 0
        pages.append(memory)
        copy = torch.frombuffer(memory, dtype=t.dtype, count=t.numel(), offset=room - size)
        return copy.view(t.shape).copy_(t)

    cases = [(5, 1, 6, 12, 13), (3, 5, 17, 7, 8), (5, 6, 3, 9, 6)]
    for k, channels, filters, height, width in cases:
        shapes = (3, channels, height, width), (filters, channels, k, k), (filters,)
        x, w, b = map(fence, _random(0, *shapes))
        y = eager.conv_relu_pool(x, w, b)
        g = fence(torch.ones(1, *y.shape))
        fast, kept, corners = conv._Forward.forward(*(t.unsqueeze(0) for t in (x, w, b)), True)
        torch.testing.assert_close(fast[0], y)
        saved = (fence(t) for t in (kept, corners, w.unsqueeze(0)))
        conv._Backward.forward(g, *saved, height, width, True)
    for classes, dim in [(3, 5), (2, 16)]:
        z, flows, labels = _flows(0, classes, 4, dim, 19)
        inputs = [fence(t).unsqueeze(0) for t in (z, *flows, labels)]
        (g,) = map(fence, _random(0, (1, 19)))
        radial._Forward.forward(*inputs)
        radial._Backward.forward(g, g, *inputs)
        radial._Forward.forward(*inputs[:-1], None)


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (1, 2), (4, 4)])
@pytest.mark.parametrize("stride", [1, 2])
def test_live_taps_are_the_whole_convolution(size, stride):
    layer = Conv3x3(3, 4, stride).double()
    x = torch.randn(5, 3, *size, dtype=torch.float64)

    def ours(x, w):
        return torch.func.functional_call(layer, {"weight": w}, (x,))

    def whole(x, w):
        return torch.nn.functional.conv2d(x, w, None, stride, 1)

    right = whole(x, layer.weight)
    g = torch.randn_like(right)
    fast, slow = (
        _derivatives(lambda *a, f=f: (f(*a),), (x, layer.weight), g) for f in (ours, whole)
    )
    torch.testing.assert_close(fast, slow)

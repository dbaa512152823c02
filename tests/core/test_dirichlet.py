"""Every measure against mpmath at 60 digits, and against Monte Carlo."""

import mpmath as mp
import numpy as np
import pytest
import torch

from fedpn.core import dirichlet

mp.mp.dps = 60


def _oracle(name, alpha, label=0):
    a = [mp.mpf(float(x)) for x in alpha]
    total = mp.fsum(a)
    k = len(a)
    m = [x / total for x in a]
    psi = mp.digamma
    if name == "entropy":
        log_beta = mp.fsum(mp.loggamma(x) for x in a) - mp.loggamma(total)
        return log_beta - mp.fsum((x - 1) * (psi(x) - psi(total)) for x in a)
    expected = -mp.fsum(p * (psi(x + 1) - psi(total + 1)) for p, x in zip(m, a, strict=True))
    of_mean = -mp.fsum(p * mp.log(p) for p in m)
    if name == "reverse_mutual_information":
        return mp.fsum(p * (mp.log(p) - psi(x) + psi(total)) for p, x in zip(m, a, strict=True))
    return {
        "expected_entropy": expected,
        "entropy_of_mean": of_mean,
        "mutual_information": of_mean - expected,
        "expected_pairwise_kl": (k - 1) / total,
        "uncertain_cross_entropy": psi(total) - psi(a[label]),
    }[name]


MEASURES = [
    "entropy",
    "expected_entropy",
    "entropy_of_mean",
    "mutual_information",
    "reverse_mutual_information",
    "expected_pairwise_kl",
]


def _alphas():
    """From no evidence to 1e22, from even to one class alone, K from 2 to 1000."""
    rng = np.random.default_rng(0)
    for k in (2, 3, 10, 1000):
        yield np.ones(k)
        for log10 in (1, 22) if k == 1000 else (-20, -3, -1, 0, 0.5, 1, 2, 4, 7, 12, 17, 22):
            for shape in (0.05, 1.0, 50.0):
                yield 1 + 10.0**log10 * rng.dirichlet(np.full(k, shape))
            alone = np.ones(k)
            alone[0] += 10.0**log10
            yield alone


ALPHAS = [torch.tensor(a, dtype=torch.float32) for a in _alphas()]


@pytest.mark.parametrize("name", MEASURES)
def test_right_to_five_digits_in_float32(name):
    for alpha in ALPHAS:
        ours, right = float(getattr(dirichlet, name)(alpha)), float(_oracle(name, alpha))
        # The entropy alone crosses zero, where no relative error can be had.
        zero = 1e-6 if name == "entropy" else 0
        assert ours == pytest.approx(right, rel=1e-5, abs=zero), (alpha[:3], len(alpha))


def test_cross_entropy_right_to_five_digits_in_float32():
    for alpha in ALPHAS:
        for label in (0, len(alpha) - 1):
            ours = dirichlet.uncertain_cross_entropy(alpha, torch.tensor(label))
            right = float(_oracle("uncertain_cross_entropy", alpha, label))
            assert float(ours) == pytest.approx(right, rel=1e-5)


@pytest.mark.parametrize("name", [*MEASURES, "uncertain_cross_entropy"])
def test_gradients_are_right_and_finite(name):
    extra = (torch.tensor([0, 1]),) if name == "uncertain_cross_entropy" else ()
    f = getattr(dirichlet, name)
    small = torch.tensor([[1.0, 2.5, 7.0], [30.0, 1.2, 4.5]], dtype=torch.float64)
    torch.autograd.gradcheck(lambda a: f(a, *extra), small.requires_grad_())
    huge = torch.tensor([[1.0, 1e22, 3.0], [1e21, 1e10, 1.0]], requires_grad=True)
    f(huge, *extra).sum().backward()
    assert huge.grad.isfinite().all()


def test_monte_carlo_agrees():
    rng = np.random.default_rng(1)
    alpha = np.array([1.5, 4.0, 2.0])
    mu, other = rng.dirichlet(alpha, 400_000), rng.dirichlet(alpha, 400_000)
    a = torch.tensor(alpha)
    m = alpha / alpha.sum()
    entropies = -(mu * np.log(mu)).sum(1)
    total = -(m * np.log(m)).sum()
    sampled = {
        "expected_entropy": entropies.mean(),
        "entropy_of_mean": total,
        "mutual_information": total - entropies.mean(),
        "reverse_mutual_information": (m * (np.log(m) - np.log(mu))).sum(1).mean(),
        "expected_pairwise_kl": (mu * (np.log(mu) - np.log(other))).sum(1).mean(),
        "entropy": -torch.distributions.Dirichlet(a).log_prob(torch.tensor(mu)).mean().item(),
    }
    for name, value in sampled.items():
        assert float(getattr(dirichlet, name)(a)) == pytest.approx(value, abs=0.01), name
    uce = dirichlet.uncertain_cross_entropy(a, torch.tensor(1))
    assert float(uce) == pytest.approx(-np.log(mu[:, 1]).mean(), abs=0.01)


def _exactly(f, *columns):
    """What a function of mpmath's gives at 60 digits, in float64."""
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return torch.tensor([float(f(*map(mp.mpf, row))) for row in rows], dtype=torch.float64)


POINTS = [0.01, 0.5, 1.0, 2.0, 3.9, 4.0, 4.1, 5.0, 7.0, 10.0, 14.0, 20.0, 30.0, 100.0, 1e6]
X = torch.tensor(POINTS, dtype=torch.float64)
FAR = torch.where(X < 4, 0.0, X**-9.0)  # below 4 no series is used


def test_series_err_by_less_than_the_first_term_that_they_drop():
    """The truth lies between a sum of Stirling's series and the next; in float64 rounding does
    not hide it. The next terms are B₁₀/(10·x⁹), B₁₀/(90·x⁹) and, of ψ, B₈/(8·x⁸)."""
    v = _exactly(lambda x: x * (mp.log(x) - mp.digamma(x)), X)
    assert ((dirichlet._v(X) - v).abs() <= 5 / 660 * FAR + 1e-15).all()
    rest = _exactly(lambda x: mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - mp.log(2 * mp.pi) / 2, X)
    assert ((dirichlet._stirling(X) - rest).abs() <= 5 / 5940 * FAR + 4e-15).all()
    for d in (1e-6, 0.3, 1.0, 50.0, 1e9):
        right = _exactly(lambda x, d: mp.digamma(x + d) - mp.digamma(x), X, torch.full_like(X, d))
        error = (dirichlet.digamma_gap(X, torch.full_like(X, d)) - right).abs()
        assert (error <= (X + 6) ** -8.0 / 240 + 4e-15 * right).all()


@pytest.mark.parametrize("name", ["others", "mean", *MEASURES])
def test_every_row_is_by_itself(name):
    f = getattr(dirichlet, name)
    alpha = 1 + torch.arange(24.0).reshape(2, 3, 4) ** 2
    for i, j in np.ndindex(2, 3):
        torch.testing.assert_close(f(alpha)[i, j], f(alpha[i, j]))


def test_every_label_is_of_its_row():
    alpha, labels = 1 + torch.arange(12.0).reshape(3, 4) ** 2, torch.tensor([3, 0, 1])
    found = dirichlet.uncertain_cross_entropy(alpha, labels)
    right = [float(_oracle("uncertain_cross_entropy", alpha[i], labels[i])) for i in range(3)]
    assert found.tolist() == pytest.approx(right, rel=1e-5)

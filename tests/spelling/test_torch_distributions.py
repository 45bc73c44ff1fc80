"""Distributions give PyTorch's densities, moments, entropies and divergences; draws have the moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
import morpho.distributions as D

torch = pytest.importorskip("torch")
A, B = np.array([0.5, 1.5, 2.5], np.float32), np.array([1.0, 0.7, 3.0], np.float32)
P, K = np.array([0.2, 0.5, 0.7], np.float32), np.array([1.0, 3.0, 2.0], np.float32)
S = np.array([[2.0, 0.3], [0.3, 1.0]], np.float32)
X = np.array([0.3, 0.6, 0.9], np.float32)
CASES: dict[str, tuple[tuple[Any, ...], Any]] = {
    "Normal": ((A, B), X), "LogNormal": ((A, B), X), "HalfNormal": ((B,), X), "Laplace": ((A, B), X), "Cauchy": ((A,
        B), X),
    "HalfCauchy": ((B,), X), "Gumbel": ((A, B), X), "Uniform": ((-A, B), X - 0.3), "Gamma": ((A, B), X),
    "Exponential": ((B,), X),
    "Chi2": ((A,), X), "InverseGamma": ((A, B), X), "Beta": ((A, B), X), "Dirichlet": ((A,), X / X.sum()),
    "StudentT": ((A + 2, A, B), X), "FisherSnedecor": ((A + 1, B + 5), X), "Pareto": ((A / 5, B), X), "Weibull": ((A,
        B), X),
    "Kumaraswamy": ((A, B), X), "MultivariateNormal": ((A[:2], S), X[:2]), "Bernoulli": ((P,), K > 1),
    "Geometric": ((P,), K),
    "Binomial": ((5, P), K), "NegativeBinomial": ((K, P), K), "Poisson": ((B,), K), "Categorical": ((P,), np.array([2,
        0])),
    "OneHotCategorical": ((P,), np.eye(3, dtype=np.float32)), "Multinomial": ((6, P), K),
}


@pytest.mark.parametrize("name", CASES)
def test_a_distribution_is_pytorch_s(name: str) -> None:
    arguments, value = CASES[name]
    theirs = getattr(torch.distributions, name)(
        *[torch.tensor(one) if isinstance(one, np.ndarray) else one for one in arguments], validate_args=False)
    with mo.device("reference"):
        ours = getattr(D, name)(*arguments)
        given = torch.tensor(np.asarray(value, np.float32))
        np.testing.assert_allclose(ours.log_prob(np.asarray(value, np.float32)).numpy(), theirs.log_prob(given).numpy(),
                                   rtol=3e-5, atol=1e-5)
        if name not in ("Categorical", "Cauchy", "HalfCauchy"):
            np.testing.assert_allclose(ours.mean.numpy(), theirs.mean.numpy(), rtol=3e-5, atol=1e-6)
            np.testing.assert_allclose(ours.variance.numpy(), theirs.variance.numpy(), rtol=1e-4, atol=1e-6)
        try:
            wanted = theirs.entropy().numpy()
        except NotImplementedError:
            wanted = None
        if wanted is not None and type(ours).entropy is not D.Distribution.entropy:
            np.testing.assert_allclose(ours.entropy().numpy(), wanted, rtol=3e-5, atol=1e-5)
        drawn = ours.sample((400,)).numpy()
        assert drawn.shape == tuple(theirs.sample((400,)).shape) and np.isfinite(drawn).all()
        if np.isfinite(theirs.variance.numpy()).all() and name not in ("Categorical", "InverseGamma", "Pareto"):
            gap = np.abs(drawn.mean(0) - theirs.mean.numpy())
            assert (gap <= 6 * np.sqrt(theirs.variance.numpy() / 400) + 1e-6).all()


def test_divergences() -> None:
    pairs = {"Normal": ((A, B), (B, A)), "Laplace": ((A, B), (B, A)), "Gamma": ((A, B), (B, A)), "Beta": ((A, B), (B,
        A)),
             "Dirichlet": ((A,), (B,)), "Uniform": ((A * 0, B), (A * 0 - 1, B + 1)), "Bernoulli": ((P,),
                 (P[::-1].copy(),)),
             "Categorical": ((P,), (P[::-1].copy(),)), "Poisson": ((A,), (B,)), "Exponential": ((A,), (B,)),
             "MultivariateNormal": ((A[:2], S), (B[:2], S * 2)), "Geometric": ((P,), (P[::-1].copy(),))}
    with mo.device("reference"):
        for name, (first, second) in pairs.items():
            theirs = [getattr(torch.distributions, name)(*map(torch.tensor, one)) for one in (first, second)]
            ours = [getattr(D, name)(*one) for one in (first, second)]
            np.testing.assert_allclose(D.kl_divergence(*ours).numpy(),
                                       torch.distributions.kl_divergence(*theirs).numpy(),
                                       rtol=3e-5, atol=1e-5, err_msg=name)
        with pytest.raises(mo.errors.ArgumentError, match="no closed form"):
            D.kl_divergence(D.Cauchy(0.0, 1.0), D.Poisson(1.0))


def test_draws_with_gradients_and_keys() -> None:
    key = mo.random.key(1)
    slope = mo.grad(lambda m: D.Normal(m, 2.0).rsample((5,), key=key).sum())(mo.asarray(1.0))
    assert slope.item() == 5.0
    joined = D.Independent(D.Normal(mo.zeros((4, 3)), mo.ones((4, 3))), 1)
    assert joined.log_prob(mo.zeros((4, 3))).shape == (4,) and joined.event_shape == (3,)
    with pytest.raises(mo.errors.ArgumentError, match="no draws with a gradient"):
        D.Gamma(1.0, 1.0).rsample()

"""`mo.distributions`: PyTorch's distributions, with `log_prob`, `sample`, `rsample`, moments, entropies, divergences.

Draws come from the stream of `mo.manual_seed`, or from a key: `d.sample((3,), key=key)`.

>>> import morpho.distributions as D
>>> d = D.Normal(0.0, 2.0)
>>> round(d.log_prob(1.0).item(), 4), d.sample((3,)).shape
(-1.7371, (3,))
>>> round(D.kl_divergence(d, D.Normal(0.0, 1.0)).item(), 4)
0.8069
"""

from morpho.distributions.base import Distribution, Independent, kl_divergence, register_kl
from morpho.distributions.continuous import (
    Beta,
    Cauchy,
    Chi2,
    Dirichlet,
    Exponential,
    FisherSnedecor,
    Gamma,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    Laplace,
    LogNormal,
    MultivariateNormal,
    Normal,
    Pareto,
    StudentT,
    Uniform,
    Weibull,
)
from morpho.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    MixtureSameFamily,
    Multinomial,
    NegativeBinomial,
    OneHotCategorical,
    Poisson,
)

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "Dirichlet", "Distribution", "Exponential",
    "FisherSnedecor", "Gamma", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "InverseGamma",
    "Kumaraswamy", "Laplace", "LogNormal", "MixtureSameFamily", "Multinomial", "MultivariateNormal",
    "NegativeBinomial", "Normal", "OneHotCategorical", "Pareto", "Poisson", "StudentT", "Uniform", "Weibull",
    "kl_divergence", "register_kl",
]

"""`mo.random`: counter-based random numbers with keys.

A draw is a pure function: element i depends on the key and on i, not on a hidden state, the shape, the number of
threads or the machine. Hence recomputing, batching and sharding repeat the same numbers:

>>> k = mo.random.key(7)
>>> whole = mo.random.uniform(k, (1000,))
>>> part = mo.random.uniform(k, (10,), start=500)           # elements 500..509 of the same draw, made elsewhere
>>> first, second = mo.random.split(k)                      # independent keys; use each for one purpose only

A stack of keys, of shape (..., 2), draws a stack of results, each as its key alone would. The numbers are those of
Threefry-2x32 with 20 rounds (Salmon et al., 2011) at the counter i; a second word of an element comes from the key
with its second half changed by a fixed number, and `split` uses another such number.
"""

from __future__ import annotations

from morpho.tensor.functions.random.basic import bernoulli, normal, permutation, randint, uniform
from morpho.tensor.functions.random.continuous import (
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    lognormal,
    multivariate_normal,
    pareto,
    truncated_normal,
    weibull,
)
from morpho.tensor.functions.random.counts import binomial, geometric, poisson
from morpho.tensor.functions.random.gamma import beta, chisquare, dirichlet, gamma, student_t
from morpho.tensor.functions.random.keys import bits, fold_in, key, split
from morpho.tensor.functions.random.picking import categorical, choice, multinomial
from morpho.tensor.tools.foreign_calls import accept_keyless, hint_calls
from morpho.tensor.tools.foreign_names import module_attribute

__all__ = ["bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chisquare", "choice", "dirichlet",
           "exponential", "fold_in", "gamma", "geometric", "gumbel", "key", "laplace", "logistic", "lognormal",
           "multinomial", "multivariate_normal", "normal", "pareto", "permutation", "poisson", "randint", "split",
           "student_t", "truncated_normal", "uniform", "weibull"]


def __dir__() -> list[str]:
    return __all__


hint_calls(globals(), __all__)
accept_keyless(globals(), ("beta", "binomial", "chisquare", "choice", "dirichlet", "exponential", "gamma", "geometric",
                           "gumbel", "laplace", "logistic", "lognormal", "multinomial", "multivariate_normal", "normal",
                           "pareto", "permutation", "poisson", "randint", "uniform", "weibull"))
__getattr__ = module_attribute("random", __name__)  # a hint for names of other libraries

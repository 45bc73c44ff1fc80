"""How many of NumPy's, PyTorch's and SciPy's names Morpho has: `python -m benchmarks.names [--missing]`.

Counted against the installed libraries. A name counts where it gives something callable or a value; one that only
raises an error that says what to write does not count.
"""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

import numpy as np

import morpho as mo

# Functions of NumPy that jax.numpy does not have.
_NOT_IN_JAX = """
array2string asanyarray asarray_chkfinite ascontiguousarray asfortranarray asmatrix base_repr binary_repr bmat
busday_count busday_offset common_type copyto datetime_as_string datetime_data format_float_positional
format_float_scientific fromregex genfromtxt get_include getbufsize geterr geterrcall info is_busday isfortran isnat
loadtxt may_share_memory min_scalar_type mintypecode nested_iters putmask real_if_close require savetxt
savez_compressed setbufsize seterr seterrcall shares_memory show_config show_runtime test typename row_stack
"""
NOT_IN_JAX = frozenset(_NOT_IN_JAX.split())
_JAX_SPECIAL = """
bernoulli bessel_jn beta betainc betaln digamma entr erf erfc erfcx erfinv exp1 expi expit expn factorial fresnel
gamma gammainc gammaincc gammaln gammasgn hyp1f1 hyp2f1 i0 i0e i1 i1e kl_div log_ndtr log_softmax logit logsumexp
lpmn lpmn_values multigammaln ndtr ndtri owens_t poch polygamma rel_entr sici softmax spence sph_harm_y xlog1py
xlogy zeta
"""
JAX_SPECIAL = _JAX_SPECIAL.split()
# Methods that only say what to write, because the shape of a tensor does not change in place.
_REFUSED = """
resize resize_ resize_as_ as_strided_ t_ squeeze_ unsqueeze_ swapaxes_ swapdims_ transpose_ itemset
"""
REFUSED = frozenset(_REFUSED.split())


def has(owner: Any, name: str) -> bool:
    try:
        getattr(owner, name)
    except AttributeError:
        return False
    return True


def public(module: Any, test: Any = callable) -> list[str]:
    return [name for name in dir(module) if not name.startswith("_") and test(getattr(module, name, None))]


def is_function(value: Any) -> bool:
    return callable(value) and not inspect.isclass(value) and not isinstance(value, types.ModuleType)


def rows() -> list[tuple[str, list[str], Any]]:
    """Title, names of the owner, and where Morpho should have them."""
    functions = [name for name in public(np, is_function) if name not in NOT_IN_JAX]
    arrays = [name for name in dir(np.ndarray) if not name.startswith("_")]
    table = [("NumPy's functions that JAX has too", functions, mo), ("numpy.ndarray", arrays, mo.ones((2, 2))),
             ("numpy.random.Generator", public(np.random.Generator, lambda _: True), mo.random.default_rng(0)),
             ("jax.scipy.special", JAX_SPECIAL, mo.special)]
    try:
        import scipy.special

        table.append(("scipy.special", public(scipy.special, is_function), mo.special))
    except ImportError:
        print("SciPy is not installed: its row is left out")
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: its rows are left out")
        return table
    methods = public(torch.Tensor, lambda _: True)
    functional = torch.nn.functional
    optimizers = [name for name in public(torch.optim, inspect.isclass) if name != "Optimizer"]
    schedules = [name for name in public(torch.optim.lr_scheduler, inspect.isclass)
                 if name.endswith(("LR", "Scheduler", "Restarts", "Plateau"))]
    kinds = [name for name in torch.distributions.__all__ if not name.endswith("Transform")]
    return [*table,
            ("torch.Tensor, without in-place", [name for name in methods if not name.endswith("_")], mo.ones((2, 2))),
            ("torch.Tensor, in-place", [name for name in methods if name.endswith("_")], mo.ones((2, 2))),
            ("torch.*", public(torch, is_function), mo),
            ("torch.nn.functional", public(functional, is_function), mo.nn.functional),
            ("torch.nn", public(torch.nn, inspect.isclass), mo.nn),
            ("torch.nn.init", public(torch.nn.init, inspect.isfunction), mo.nn.init),
            ("torch.nn.utils", public(torch.nn.utils, inspect.isfunction), mo.nn.utils),
            ("torch.optim", optimizers, mo.optim), ("torch.optim.lr_scheduler", schedules, mo.optim),
            ("torch.distributions", kinds, mo.distributions),
            ("torch.linalg", public(torch.linalg, is_function), mo.linalg),
            ("torch.special", public(torch.special, is_function), mo.special),
            ("torch.fft", public(torch.fft, is_function), mo.fft),
            ("torch.nn.Module", public(torch.nn.Module, is_function), mo.nn.Linear(1, 1))]


def main(arguments: list[str]) -> None:
    print("| names | found / all |\n|---|---|")
    lists = []
    for title, names, owner in rows():
        missing = [name for name in names if (name in REFUSED and isinstance(owner, mo.Tensor)) or not has(owner, name)]
        print(f"| {title} | {len(names) - len(missing)} / {len(names)} |")
        lists.append((title, missing))
    if "--missing" in arguments:
        for title, missing in lists:
            print(f"\n{title}: {' '.join(missing) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1:])

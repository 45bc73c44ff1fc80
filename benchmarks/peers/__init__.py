"""The peers of every suite, `peers/<peer>/<suite>.py`, each loaded only inside its own worker process.

A peer module has three functions:

    load(threads) -> dict of versions        # ImportError: the peer is missing
    prepare(case, inputs) -> Prepared        # KeyError: the peer does not do this case
    to_numpy(result) -> tuple of arrays      # for the check against float64

``CASES_MODULE``, where a peer has it, tells the worker where inputs and answers come from; ``why_not(case)`` is a
sentence when the peer cannot do a case at all. A file beside the suites' is a model that they share.
"""

BY_SUITE: dict[str, tuple[str, ...]] = {
    "core": ("morpho", "numpy", "torch", "torch_compile", "jax", "numba"),
    "kernels": ("morpho", "unfused", "numpy", "torch", "torch_compile", "jax", "onnxruntime"),
    "train": ("morpho", "torch", "torch_compile", "transformers", "llama_cpp"),
    "programs": ("morpho", "numpy", "jax", "numba", "torch"),
    "serve": ("morpho", "llama_cpp"),
    "sparse": ("morpho", "scipy", "torch"),
    "linalg": ("morpho", "scipy"),
}


def peers_of(suite: str) -> dict[str, str]:
    """The modules of a suite's peers by name.

    >>> peers_of("core")["numba"]
    'benchmarks.peers.numba.core'
    """
    return {peer: f"benchmarks.peers.{peer}.{suite}" for peer in BY_SUITE.get(suite, ())}

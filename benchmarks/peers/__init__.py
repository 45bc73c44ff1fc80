"""One file per peer, each loaded only inside its own worker process.

A peer module has three functions:

    load(threads) -> dict of versions        # ImportError: the peer is missing
    prepare(case, inputs) -> Prepared        # KeyError: the peer does not do this case
    to_numpy(result) -> tuple of arrays      # for the check against float64
"""

PEERS: dict[str, str] = {
    "morpho": "benchmarks.peers.morpho_peer",
    "numpy": "benchmarks.peers.numpy_peer",
    "torch": "benchmarks.peers.torch_peer",
    "torch_compile": "benchmarks.peers.torch_compile_peer",
    "jax": "benchmarks.peers.jax_peer",
    "numba": "benchmarks.peers.numba_peer",
}

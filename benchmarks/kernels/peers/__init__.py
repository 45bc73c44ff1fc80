"""One file per peer of the kernel benchmarks, each loaded only inside its own worker process (see benchmarks/peers).

``CASES_MODULE`` tells the worker where inputs and answers come from; ``why_not(case)``, where a peer has it, is a
sentence when the peer cannot do a case at all.
"""

PEERS: dict[str, str] = {
    "morpho": "benchmarks.kernels.peers.morpho_peer",
    "unfused": "benchmarks.kernels.peers.unfused_peer",
    "numpy": "benchmarks.kernels.peers.numpy_peer",
    "torch": "benchmarks.kernels.peers.torch_peer",
    "torch_compile": "benchmarks.kernels.peers.torch_compile_peer",
    "jax": "benchmarks.kernels.peers.jax_peer",
    "onnxruntime": "benchmarks.kernels.peers.onnxruntime_peer",
}

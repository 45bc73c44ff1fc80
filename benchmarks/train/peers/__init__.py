"""One file per peer of the training benchmarks, each loaded only inside its own worker process."""

PEERS: dict[str, str] = {
    "morpho": "benchmarks.train.peers.morpho_peer",
    "torch": "benchmarks.train.peers.torch_peer",
    "torch_compile": "benchmarks.train.peers.torch_compile_peer",
    "transformers": "benchmarks.train.peers.transformers_peer",
    "llama_cpp": "benchmarks.train.peers.llama_cpp_peer",
}

"""`torch.compile(model, backend="morpho")`: AOTAutograd's graphs, inference, forward and backward, in Morpho."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import GraphModule, Node

from morpho.torch.aten import TABLE
from morpho.torch.runner import Runner

_FLASH = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions into core ATen operations, less those that Morpho has as one.

    >>> from morpho.torch.backend import decompositions
    >>> import torch
    >>> torch.ops.aten.silu.default in decompositions(), torch.ops.aten.hardswish.default in decompositions()
    (False, True)
    """
    return {operation: rule for operation, rule in core_aten_decompositions().items() if str(operation) not in TABLE}


def _compile(kind: str, module: GraphModule, examples: Sequence[Any]) -> Any:
    return make_boxed_func(Runner(module, kind))


def _partition(joint: GraphModule, *args: Any, **kwargs: Any) -> tuple[GraphModule, GraphModule]:
    """Cut the joint graph; what Morpho's attention does not read in its backward pass is not kept for it."""
    for node in joint.graph.nodes:
        if str(node.target) == _FLASH and TABLE[_FLASH].refuse is not None:
            _, q, _, _, out, logsumexp, dropout, *_ = node.args
            if not dropout and isinstance(q, Node):
                node.args = (*node.args[:4], q, q, *node.args[6:])
    return min_cut_rematerialization_partition(joint, *args, **kwargs)


def morpho(module: GraphModule, examples: Sequence[Any], **options: Any) -> Any:
    """The backend: what `torch.compile` calls with a graph."""
    chosen = aot_autograd(
        fw_compiler=partial(_compile, "forward"), bw_compiler=partial(_compile, "backward"),
        inference_compiler=partial(_compile, "inference"), decompositions=decompositions(),
        partition_fn=_partition, keep_inference_input_mutations=False)
    return chosen(module, examples)


def register() -> None:
    """Make the name known to `torch.compile`."""
    from torch._dynamo import list_backends, register_backend

    if "morpho" not in list_backends(exclude_tags=()):
        register_backend(morpho, name="morpho")



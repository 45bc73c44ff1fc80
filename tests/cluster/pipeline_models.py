"""Small models of each family in folders, and plans for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import morpho as mo
from morpho import plan

WORDS = 60
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"vocab_size": WORDS, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 4,
              "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512},
    "gpt2": {"vocab_size": WORDS, "n_embd": 24, "n_layer": 4, "n_head": 3, "n_positions": 512,
             "tie_word_embeddings": False},
    "prenorm-small": {"vocab_size": WORDS, "width": 24, "layers": 4, "heads": 2, "hidden": 40, "max_seq_len": 512,
                      "tie_embeddings": False},
    "t5-small": {"vocab_size": WORDS, "d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 4,
                 "tie_word_embeddings": False, "eos_token_id": None},
}


def folder_of(where: Path, family: str, **changes: Any) -> Path:
    """A folder with a model of random weights, large enough that tokens differ from each other."""
    mo.nn.random.seed(7)
    model = mo.models.create(family, **{**FAMILIES[family], **changes})
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.assign(mo.asarray(parameter.numpy() * 12))
    folder = where / family
    mo.models.save(folder, model)
    return folder


def plan_of(folder: Path, cuts: list[int], spare: int = 0, activations: tuple[str, ...] = (),
            shared: tuple[int, ...] = ()) -> plan.Plan:
    """A plan with these cuts: nodes n0, n1, ... one to a stage, or as many as `shared` says; further nodes hold
    nothing."""
    from morpho.cluster.frontend.local import card_of
    from morpho.plan.predict.plan import Constraints, Stage
    from morpho.plan.solve.registry import Proposal
    from morpho.plan.solve.solver import complete

    card = card_of(folder, context=256)
    sizes = shared or (1,) * (len(cuts) + 1)
    names = iter(f"n{i}" for i in range(99))
    members = [tuple(next(names) for _ in range(size)) for size in sizes]
    nodes = [plan.Node(f"n{i}", 1 << 33, 1e8, {"f32": 1e8}) for i in range(sum(sizes) + spare)]
    cluster = plan.Cluster.uniform(nodes, 1e10, 1e-6)
    edges = [0, *cuts, card.depth]
    dtypes = [*(activations or ["f32"])] * len(members)  # of the links, in turn
    stages = tuple(Stage(who[0], edges[i], edges[i + 1], dtypes[i], who, (who,)) for i, who in enumerate(members))
    return complete(card, cluster, Proposal(stages), "optimal", bound=False, constraints=Constraints(
        activation_dtypes=activations, tensor=max(sizes)))

"""Models, plans and pipelines that the themes share."""

from __future__ import annotations

import tempfile
import time
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import morpho as mo
from morpho import plan
from morpho.cluster import Pipeline
from morpho.cluster.frontend.local import card_of, local_cluster
from morpho.plan.predict.plan import Constraints, Stage
from morpho.plan.solve.registry import Proposal
from morpho.plan.solve.solver import complete

WORDS = 512
PROMPT = [3, 14, 15, 9, 2, 6, 5, 35]
_homes: list[tempfile.TemporaryDirectory[str]] = []  # of the models; they go with the process


@cache
def folder(layers: int = 6, width: int = 128) -> Path:
    """A Llama of random weights in a folder of its own."""
    mo.nn.random.seed(7)
    model = mo.models.create("llama", vocab_size=WORDS, hidden_size=width, intermediate_size=3 * width,
                             num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
                             max_position_embeddings=2048)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.assign(mo.asarray(parameter.numpy() * 8))
    _homes.append(tempfile.TemporaryDirectory(prefix="morpho-bench-"))
    place = Path(_homes[-1].name) / f"llama-{layers}x{width}"
    mo.models.save(place, model)
    return place


@cache
def alone(place: Path, count: int, seed: int | None, prompt: tuple[int, ...] = tuple(PROMPT)) -> list[int]:
    """The text of one process."""
    how: dict[str, Any] = {"temperature": 0} if seed is None else {"temperature": 0.9, "seed": seed}
    return [*mo.models.generate(mo.models.load(place), [*prompt], max_new_tokens=count, **how)]


def cut_plan(place: Path, cuts: list[int], cluster: plan.Cluster | None = None, dtype: str = "") -> plan.Plan:
    """A plan with these cuts, on the nodes of a cluster in their order."""
    card, dtypes = card_of(place, context=256), (dtype,) if dtype else ()
    cluster = cluster or local_cluster(len(cuts) + 1)
    edges = [0, *cuts, card.depth]
    stages = tuple(Stage(node.name, start, end, dtype, (node.name,), ((node.name,),))
                   for node, (start, end) in zip(cluster.nodes, pairwise(edges)))
    return complete(card, cluster, Proposal(stages), "optimal", constraints=Constraints(activation_dtypes=dtypes),
                    bound=False)


def even_cuts(place: Path, stages: int) -> list[int]:
    """Cuts into stages of about equal numbers of layers."""
    depth = card_of(place).depth
    return [round(depth * number / stages) for number in range(1, stages)]


def pipeline(place: Path, found: plan.Plan, **options: Any) -> Pipeline:
    """Workers of one thread each, ready and warm."""
    made = Pipeline(place, found, threads=options.pop("threads", 1), **options).wait()
    warm(made)
    return made


def warm(made: Pipeline) -> None:
    """Compile what is compiled at first use: for prompts, single tokens, and rows of several texts."""
    for texts in (2, 2 * len(made.places)):
        for _ in made.generate([PROMPT] * texts, max_new_tokens=6, temperature=0):
            pass


def tokens_per_s(made: Any, texts: int, count: int) -> float:
    """Of so many texts at once."""
    begun = time.perf_counter()
    made_tokens = sum(len(each) for each in made.generate([PROMPT] * texts, max_new_tokens=count, temperature=0))
    return made_tokens / (time.perf_counter() - begun)

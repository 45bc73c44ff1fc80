"""The formulas of layers against counts taken from graphs, published sizes, and the mistakes others made."""

from __future__ import annotations

import json

import numpy as np
import pytest
from plan_cases import chain, node

import morpho as mo
from benchmarks.models import gpt2
from benchmarks.peers.morpho import gpt
from morpho import plan
from morpho.base.errors import MorphoError
from morpho.cost.estimate import node_flops
from morpho.cost.layers import BlockShape, convolution_flops, linear_flops
from morpho.plan.model.graphs import trace
from morpho.plan.predict.closed_form import layer_seconds, reduce_seconds

BATCH, LENGTH, WIDTH, HEADS, WORDS, LAYERS = 2, 24, 32, 4, 50, 2


def products(function, *arguments) -> int:
    """FLOPs of all products and attentions in a function's graph."""
    graph, _ = trace(function, arguments)
    return sum(node_flops(found) for found in graph.nodes if found.op.kind == "contract")


def small_gpt2():
    weights = gpt2.make_weights(gpt2.Size(LAYERS, WIDTH, HEADS, WORDS, positions=64), seed=0)
    return gpt.build(weights, HEADS, exact=False)


def small_config() -> dict:
    return {"model_type": "gpt2", "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": WORDS,
            "n_positions": 64}


def test_attention_counts_both_products_in_a_graph():
    """The length counts, not the depth: the two differ here."""
    q, k = mo.zeros((2, 3, 5, 8)), mo.zeros((2, 3, 7, 8))
    graph, _ = trace(lambda a, b: mo.attention(a, b, b), (q, k))
    assert [node_flops(found) for found in graph.nodes if found.op.name == "attention"] == [4 * 2 * 3 * 5 * 7 * 8]


def test_block_prefill_is_8sh2_4s2h_4shf_and_the_head_2shv():
    S, H, F, V = 48, 64, 256, 1000
    block = BlockShape(H, F, 4)
    assert block.flops(S, S, 1) - block.norm_flops(S) == 8 * S * H**2 + 4 * S**2 * H + 4 * S * H * F
    card = plan.ModelCard.from_config({**small_config(), "n_embd": H, "vocab_size": V}, batch=1, context=S)
    assert card.layers[-1].prefill_flops == 2 * S * H * V + 8 * S * H


def test_gpt2_by_formula_is_gpt2_as_traced():
    """All products of the traced model, and the weights, to the last one."""
    ids = np.zeros((BATCH, LENGTH), np.int32)
    card = plan.ModelCard.from_config(small_config(), batch=BATCH, context=LENGTH, dtype="f32")
    norms = (2 * LAYERS + 1) * 8 * BATCH * LENGTH * WIDTH
    assert products(small_gpt2(), ids) == sum(layer.prefill_flops for layer in card.layers) - norms
    traced = plan.ModelCard.from_graph(small_gpt2(), ids)
    weights = [layer.weight_bytes for layer in card.layers]
    assert sum(layer.weight_bytes for layer in traced.layers) == sum(weights)
    assert traced.layers[3].weight_bytes + traced.layers[4].weight_bytes == weights[2]  # attention, then MLP
    assert {layer.prefill_cut_elements for layer in traced.layers[:-1]} == {BATCH * LENGTH * WIDTH}


def test_decoding_by_formula_is_decoding_as_traced():
    """One token after a full cache: rows are sequences, keys the whole context."""
    def step(x, wq, wkv, wo, up, down, keys, values):  # (B, H), cached (B, heads, C, d)
        rows, width = x.shape
        q = mo.reshape(x @ wq, (rows, HEADS, 1, width // HEADS))
        kv = x @ wkv
        seen = mo.reshape(mo.attention(q, keys, values), (rows, width))
        return mo.gelu((seen @ wo) @ up) @ down + kv.sum()

    B, C, H, F = 3, 40, WIDTH, 4 * WIDTH
    shapes = [(B, H), (H, H), (H, 2 * H), (H, H), (H, F), (F, H)] + [(B, HEADS, C, H // HEADS)] * 2
    block = BlockShape(H, F, HEADS)
    assert products(step, *(np.zeros(shape, np.float32) for shape in shapes)) == (
        block.flops(B, C, B) - block.norm_flops(B))
    assert block.cache(C) == 2 * C * H


def test_grouped_queries_gated_mlp_and_cross_attention_as_traced():
    def block(x, source, wq, wk, wo, gate, up, down):
        def attend(rows, other):
            q = mo.permute_dims(mo.reshape(rows @ wq, (BATCH, -1, HEADS, 8)), (0, 2, 1, 3))
            k, v = (mo.permute_dims(mo.reshape(other @ wk, (BATCH, -1, 2, 8)), (0, 2, 1, 3)) for _ in range(2))
            joined = mo.permute_dims(mo.attention(q, k, v + 1), (0, 2, 1, 3))
            return mo.reshape(joined, (*rows.shape[:2], HEADS * 8)) @ wo

        x = attend(x, x)
        x = attend(x + 1, source)
        return (mo.silu(x @ gate) * (x @ up)) @ down

    H, F, S, E = WIDTH, 80, 12, 20
    shapes = [(BATCH, S, H), (BATCH, E, H), (H, HEADS * 8), (H, 16), (HEADS * 8, H), (H, F), (H, F), (F, H)]
    made = BlockShape(H, F, HEADS, key_heads=2, head_width=8, gated=True, cross=True)
    counted = products(block, *(np.zeros(shape, np.float32) for shape in shapes))
    # Keys and values share a product in this function, so its graph has each pair once.
    once = linear_flops(BATCH * S, H, 16) + linear_flops(BATCH * E, H, 16)
    whole = made.flops(BATCH * S, S, BATCH, E, BATCH * E) - made.norm_flops(BATCH * S)
    assert counted == whole - once


def test_linear_and_convolution_as_traced():
    x, w = np.zeros((5, 7), np.float32), np.zeros((7, 11), np.float32)
    assert products(lambda a, b: a @ b, x, w) == linear_flops(5, 7, 11) == 2 * 5 * 7 * 11
    image, kernel = np.zeros((2, 3, 10, 12), np.float32), np.zeros((4, 3, 3, 3), np.float32)
    assert products(lambda a, b: mo.conv2d(a, b), image, kernel) == convolution_flops(2, 8, 10, 3, 4, (3, 3))


@pytest.mark.parametrize(("name", "parameters"), [
    ("gpt2", 124_439_808), ("gpt2-xl", 1_557_611_200), ("llama-1b", 1_235_814_400), ("llama-8b", 8_030_261_248),
    ("llama-70b", 70_553_706_496),
])
def test_published_sizes(name, parameters):
    assert plan.ModelCard.from_config(name, dtype="f32").weight_bytes == 4 * parameters
    assert plan.ModelCard.from_config(name, dtype="int8").weight_bytes == parameters
    four_bits = plan.ModelCard.from_config(name, dtype="q4").weight_bytes
    assert abs(four_bits - parameters * 4.5 / 8) < 1000


def test_families_differ_where_they_should():
    bert, t5 = (plan.ModelCard.from_config(name, context=128) for name in ("bert-base", "t5-small"))
    assert bert.phase == "prefill" and all(layer.kv_bytes == 0 for layer in bert.layers)
    assert bert.tokens_per_pass == 128 and bert.with_(phase="decode").tokens_per_pass == 1
    encoder, decoder = t5.layers[1], t5.layers[-2]
    assert encoder.decode_flops == 0 and encoder.kv_bytes == 0 and decoder.kind == "cross block"
    # After the encoder every cut of a prompt carries its output along; a decoded token only its own row.
    assert decoder.prefill_cut_elements == 2 * encoder.prefill_cut_elements == 2 * 128 * 512
    assert decoder.decode_cut_elements == 512
    llama = plan.ModelCard.from_config("llama-8b", context=1000, dtype="f16")
    assert llama.layers[1].kv_bytes == 2 * 1000 * 8 * 128 * 2  # 8 of 32 heads have keys
    assert llama.tied is None and bert.tied == (0, 13)


def test_a_megabyte_over_a_gigabit_line_takes_8_ms():
    line = plan.Link("a", "b", plan.mbit_per_s(1000), 0.0)
    assert line.seconds(1_000_000) == pytest.approx(8e-3, rel=1e-12)
    assert plan.Link("a", "b", plan.mbit_per_s(1000), 2e-3).seconds(1_000_000) == pytest.approx(10e-3)


def test_the_roofline_and_what_was_measured():
    layer = plan.Layer("l", "block", 4e9, 1e9, 1e6, 1e9, 0, key="block x")
    machine = plan.Node("a", 1, 1e10, {"f32": 1e12, "bf16": 2e12}, efficiency=0.5)
    assert layer_seconds(layer, machine, "f32", "prefill") == 0.2  # moving 1 GB at 10 GB/s, at half efficiency
    fast = plan.Node("a", 1, 1e13, {"f32": 1e12, "bf16": 2e12})
    assert layer_seconds(layer, fast, "bf16", "prefill") == pytest.approx(2e-3)
    measured = plan.Node("a", 1, 1e13, {"f32": 1e12}, measured={"block x": (0.5, 0.25)})
    assert layer_seconds(layer, measured, "f32", "prefill") == 0.5
    assert layer_seconds(layer, measured, "f32", "decode") == 0.25


def test_a_ring_of_members_sends_twice_its_part():
    layer = plan.Layer("l", "block", 0, 0, 0, 0, 0, decode_reduce_elements=1000, reduces=2)
    line = plan.Link("a", "b", 1000.0, 0.1)
    assert reduce_seconds(layer, line, 4, 2.0, "decode") == pytest.approx(2 * 6 * 0.1 + 6 / 4 * 2000 / 1000)
    assert reduce_seconds(layer, line, 1, 2.0, "decode") == 0.0


def test_memory_counts_caches_of_all_micro_batches_and_shared_tables_once():
    card = chain(4, micro_batches=3)
    assert card.memory_bytes(1, 3) == 200
    tied = plan.ModelCard.from_config("gpt2", context=64, dtype="f32", micro_batches=2)
    table = 50257 * 768 * 4
    assert tied.tied_bytes == table
    apart = tied.memory_bytes(0, 7) + tied.memory_bytes(7, 14)
    scratch = max(layer.workspace_bytes for layer in tied.layers[:7]) + max(
        layer.workspace_bytes for layer in tied.layers[7:])
    whole = tied.memory_bytes(0, 14) - max(layer.workspace_bytes for layer in tied.layers)
    assert apart - scratch == whole + table
    one = plan.ModelCard.from_config("gpt2", context=64, dtype="f32").memory_bytes(1, 2)
    assert tied.memory_bytes(1, 2) - one == tied.layers[1].kv_bytes == 2 * 64 * 768 * 4


@pytest.mark.parametrize(("change", "said"), [
    ({"n_embd": None}, "lacks 'n_embd'"), ({"n_layer": -3}, "n_layer is -3"), ({"n_head": "12"}, "n_head is '12'"),
    ({"model_type": "rwkv"}, "model_type 'rwkv' is not known"),
])
def test_a_bad_config_names_file_and_field(change, said, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**small_config(), **change}))
    with pytest.raises(MorphoError, match=r"config\.json") as caught:
        plan.ModelCard.from_config(path)
    assert said in str(caught.value)


@pytest.mark.parametrize(("config", "options", "said"), [
    ("no-such-model", {}, "there is no model"), ("gpt2", {"dtype": "int3"}, "dtype 'int3'"),
    ("gpt2", {"batch": 0}, "batch is 0"), ("gpt2", {"context": -1}, "context is -1"),
])
def test_bad_requests_for_cards(config, options, said):
    with pytest.raises(MorphoError, match=said):
        plan.ModelCard.from_config(config, **options)


def test_a_config_file_that_is_no_json(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(MorphoError, match=r"config.json is not valid JSON"):
        plan.ModelCard.from_config(tmp_path)


def test_a_long_context_is_noted():
    assert "longer" in plan.ModelCard.from_config("gpt2", context=4096).notes[0]


def test_functions_that_return_no_tensor_make_no_card():
    with pytest.raises(MorphoError, match="does not return tensors"):
        plan.ModelCard.from_graph(lambda x: 3, np.zeros(2))


@pytest.mark.parametrize("wrong", [{"memory_bytes": 0}, {"memory_bytes_per_s": -1.0}, {"flops_per_s": {"bf16": 1.0}},
                                   {"flops_per_s": {"f32": float("nan")}}, {"efficiency": 0.0}])
def test_nodes_have_positive_figures(wrong):
    with pytest.raises(MorphoError, match="node 'a'"):
        plan.Node(**{"name": "a", "memory_bytes": 1, "memory_bytes_per_s": 1.0, "flops_per_s": {"f32": 1.0}, **wrong})


def test_clusters_are_square_and_named_once():
    with pytest.raises(MorphoError, match="two nodes are called 'a'"):
        plan.Cluster.uniform([node("a"), node("a")], 1, 0)
    with pytest.raises(MorphoError, match="not a matrix of 2 x 2"):
        plan.Cluster((node("a"), node("b")), ((1.0,),), ((0.0,),))
    with pytest.raises(MorphoError, match="a -> b has latency_s = -1"):
        plan.Cluster((node("a"), node("b")), ((1.0, 1.0),) * 2, ((0.0, -1.0), (0.0, 0.0)))
    with pytest.raises(MorphoError, match="no node 'c'"):
        plan.Cluster.uniform([node("a")], 1, 0).node("c")


@pytest.mark.parametrize(("name", "sizes"), [
    ("prenorm-small", {"width": 16, "layers": 2, "heads": 4, "kv_heads": 2, "hidden": 24}),
    ("prenorm-small", {"width": 16, "layers": 1, "heads": 2, "activation": "gelu", "normalization": "layernorm",
                       "use_rope": False, "tie_embeddings": False}),
    ("prenorm-small", {"width": 16, "layers": 1, "heads": 2, "attention_bias": False}),
])
def test_a_model_of_the_registry_has_the_weights_of_its_card(name, sizes):
    model = mo.models.create(name, vocab_size=50, max_seq_len=32, **sizes)
    card = plan.ModelCard.from_config(model.config, context=16, dtype="f32")
    total = sum(layer.weight_bytes for layer in card.layers) - (card.tied_bytes if card.tied is not None else 0)
    assert total == 4 * model.parameter_count()


def test_names_of_the_registry():
    for name in ("prenorm-base", "smollm2-135m", "smollm2", "llama", "t5-small"):
        assert plan.ModelCard.from_config(name, context=64).depth > 5
    with pytest.raises(MorphoError, match=r"no model 'vit-b16' of transformer blocks, and vit-b16 is of another kind.*"
                                          r"gpt2-xl.*prenorm-small, qwen2, .*from_graph"):
        plan.ModelCard.from_config("vit-b16")
    with pytest.raises(MorphoError, match=r"there is no model 'nothing' of transformer blocks\. "):
        plan.ModelCard.from_config("nothing")


def test_a_gguf_file_is_no_configuration(tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(MorphoError, match=r"is a GGUF file.*config\.json of the model"):
        plan.ModelCard.from_config(tmp_path / "a.gguf")


def test_cuts_of_a_function_whose_layers_all_read_a_mask() -> None:
    """One value never crosses alone; what is made of weights alone crosses nothing, and its memory is the weights'."""
    weights = [mo.asarray(np.full((16, 16), place + 1, np.float32)) for place in range(4)]

    def masked(x: mo.Tensor, mask: mo.Tensor) -> mo.Tensor:
        hide = mo.exp(mask)
        for weight in weights:
            x = mo.tanh(x @ (weight / mo.sqrt(weight))) + hide
        return x

    card = plan.ModelCard.from_graph(masked, np.zeros((2, 16), np.float32), np.zeros(16, np.float32))
    assert card.depth == 4
    assert [layer.weight_bytes for layer in card.layers] == [16 * 16 * 4] * 4
    # The mask, as wide as x, is made after the first product, and crosses from there on.
    assert [layer.prefill_cut_elements for layer in card.layers] == [32, 64, 64, 32]

"""The families without another library at hand: sizes, shapes, training, and what a wrong setting says."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError
from morpho.models.text import generators

SMALL = {
    "gpt2": {"vocab_size": 50, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16},
    "llama": {"vocab_size": 50, "hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 2,
              "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 16},
    "prenorm-small": {"vocab_size": 50, "width": 8, "layers": 2, "heads": 2, "hidden": 12, "max_seq_len": 16,
                      "use_rope": False, "normalization": "layernorm", "activation": "gelu", "tie_embeddings": False},
    "bert-base": {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
                  "intermediate_size": 12, "max_position_embeddings": 16},
    "t5-small": {"vocab_size": 50, "d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 2, "num_heads": 3,
                 "n_positions": 16},
}


def test_published_sizes() -> None:
    """Numbers of parameters as published; weights that are not drawn take no memory."""
    wanted = {"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-xl": 1_557_611_200, "smollm2-135m": 134_515_008,
              "t5-small": 60_506_624, "vit-b16": 86_567_656, "resnet18": 11_689_512,
              "resnet50": 25_557_032}
    with mo.nn.init.undrawn():
        assert {name: mo.models.create(name).parameter_count() for name in wanted} == wanted
        assert mo.models.create("bert-base", masked_lm=False).parameter_count() == 109_482_240
        assert mo.models.create("bert-large", pooler=False).parameter_count() == 335_174_458
        model = mo.models.prenorm_transformer_base(vocab_size=50_000, max_seq_len=2048, activation="swiglu",
                                                   normalization="rmsnorm", use_rope=True, tie_embeddings=True)
        assert model.parameter_count() == 151_702_272
        sizes = [made(100, 64).config for made in (mo.models.prenorm_transformer_small,
                                                   mo.models.prenorm_transformer_large)]
    assert [(each["width"], each["layers"], each["heads"]) for each in sizes] == [(512, 6, 8), (1024, 24, 16)]
    assert {model.config[key] for key in ("width", "hidden")} == {768, 3072} and model.config["heads"] == 12


@pytest.mark.parametrize("name", ["resnet50", "resnet18"])
def test_resnet_names(name: str) -> None:
    with mo.nn.init.undrawn():
        names = set(mo.models.create(name).state_dict())
    assert {"conv1.weight", "bn1.running_var", "layer1.0.conv1.weight", "layer2.0.downsample.0.weight",
            "layer4.1.bn2.bias", "fc.bias"} <= names
    assert "layer1.0.downsample.0.weight" in names or name == "resnet18"


def _losses(model: mo.models.Model, loss: Callable[[], mo.Tensor], steps: int) -> list[float]:
    """A few steps, one NumPy operation at a time: what is compiled is looked at elsewhere."""
    optimiser = mo.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    with mo.settings(device="reference"):
        for _ in range(steps):
            value = loss()
            value.backward()
            optimiser.step()
            optimiser.zero_grad()
            found.append(value.item())
    return found


@pytest.mark.parametrize("name", sorted(SMALL))
def test_training_changes_every_weight(name: str) -> None:
    mo.nn.seed(4)
    model = mo.models.create(name, **SMALL[name])
    ids = mo.asarray(np.random.default_rng(1).integers(0, 50, (2, 9)))

    def loss() -> mo.Tensor:
        if name == "bert-base":
            hidden = model(ids[:, :-1], types=ids[:, :-1] % 2)
            found, others = model.logits(hidden), mo.sum(model.pooled(hidden))
        else:
            found, others = model(ids, ids[:, :-1]) if name == "t5-small" else model(ids[:, :-1]), 0
        return mo.cross_entropy(mo.reshape(found, (-1, 50)), mo.reshape(ids[:, 1:], (-1,))) + others

    before = {key: value.numpy(copy=True) for key, value in model.state_dict().items()}
    losses = _losses(model, loss, 3)
    assert losses[-1] < losses[0] and np.isfinite(losses).all()
    assert [key for key, value in model.state_dict().items() if (value.numpy() == before[key]).all()] == []


def test_cnn_vit_and_mlp_learn() -> None:
    images = mo.asarray(np.random.default_rng(2).standard_normal((4, 1, 8, 8)).astype(np.float32))
    labels = mo.asarray([0, 1, 2, 1])
    for model in (mo.models.create("cnn", size=8, widths=[4], hidden=8, outputs=3),
                  mo.models.create("mlp", inputs=64, hidden=[8], outputs=3, activation="gelu"),
                  mo.models.create("vit-b16", hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8,
                                   intermediate_size=8, patch_size=4, num_channels=1, num_labels=3)):
        losses = _losses(model, lambda model=model: mo.cross_entropy(model(images), labels), 3)  # type: ignore[misc]
        assert losses[-1] < losses[0], type(model).__name__


def test_t5_pieces_equal_the_whole() -> None:
    """The decoder by single steps over a kept encoder result, and at once: the same bits."""
    mo.nn.seed(6)
    model = mo.models.create("t5-small", **SMALL["t5-small"]).eval()
    source, target = [7, 3, 9, 1, 4], [0, 5, 8, 2]
    whole = model(mo.asarray([source]), mo.asarray([target])).numpy()[0]
    generator = generators.TwoPartGenerator(model)
    assert (generator.start(source) == whole[0]).all()
    for position in range(1, 4):
        assert (generator.step(target[position]) == whole[position]).all()
    generator.start(source[:3])
    assert generator.compilations == 3
    with pytest.raises(ArgumentError, match="needs the encoder's result"):
        model.hidden(mo.asarray([target]))


def test_an_epsilon_of_zero_with_padding_on_the_left() -> None:
    """Padded places see nothing, so their rows are zeros: those stay zeros, and do not reach the others as NaN."""
    model = mo.models.create("gemma2", vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                             num_attention_heads=2, num_key_value_heads=1, head_dim=8, max_position_embeddings=32,
                             rms_norm_eps=0.0)
    found = model(mo.asarray([[0, 0, 3, 4]]), mo.asarray([[0, 0, 1, 1]])).numpy()
    assert np.isfinite(found[:, 2:]).all()


def test_padding_changes_nothing_for_the_rest() -> None:
    model = mo.models.create("bert-base", **SMALL["bert-base"]).eval()
    ids = mo.asarray([[4, 8, 15, 16, 0, 0], [4, 8, 15, 16, 23, 42]])
    mask = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])
    found = model(ids, mask).numpy()
    assert (found[0, :4] == model(ids[:1, :4]).numpy()[0]).all() and (found[1] == model(ids[1:]).numpy()[0]).all()


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_any_length_by_one_function(name: str) -> None:
    """The length as a dynamic size: the same bits, compiled once."""
    model = mo.models.create(name, **SMALL[name]).eval()
    forward = mo.compile(lambda ids: model(ids), dynamic={"ids": {1: mo.Dim("n", 1, 16)}})
    whole = model(mo.arange(16)[None]).numpy()
    for length in (1, 7, 16):
        assert (forward(mo.arange(length)[None]).numpy() == whole[:, :length]).all()
    assert forward.stats["recompiles"] == 0


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert-base"])
def test_sequences_that_are_too_long_are_said(name: str) -> None:
    model = mo.models.create(name, **SMALL[name])
    with pytest.raises(ShapeError, match="17 tokens from position 0 on are more than the 16 positions"):
        model(mo.zeros((1, 17), dtype=mo.int64))


def test_a_model_can_be_copied() -> None:
    model = mo.models.create("gpt2", **SMALL["gpt2"])
    text = [*mo.models.generate(model, [1, 2], max_new_tokens=3)]
    twin = copy.deepcopy(model)
    next(model.parameters()).assign(mo.zeros((50, 8)))
    assert [*mo.models.generate(twin, [1, 2], max_new_tokens=3)] == text


def test_what_cannot_be_built_is_said() -> None:
    for name, settings, words in (
            ("gpt2", {"n_embd": 10, "n_head": 3}, "n_embd=10 is not a multiple of n_head=3"),
            ("gpt2", {"add_cross_attention": True}, "unknown settings"),
            ("vit-b16", {"image_size": 30}, "image_size=30 is not a multiple of patch_size=16"),
            ("resnet18", {"block": "wide"}, "block is 'wide'.*one of basic, bottleneck"),
            ("llama", {**SMALL["llama"], "rope_scaling": {"type": "su"}},
             "rope_scaling.type is 'su'.*one of default, linear")):
        with pytest.raises(ArgumentError, match=words), mo.nn.init.undrawn():
            mo.models.create(name, **settings)
    with pytest.raises(ArgumentError, match="position_embedding_type is 'relative_key', and only"):
        mo.models.from_config({"model_type": "bert", "position_embedding_type": "relative_key"})
    model = mo.models.create("bert-base", **SMALL["bert-base"], pooler=False, masked_lm=False)
    with pytest.raises(ArgumentError, match="has no pooler"):
        model.pooled(mo.zeros((1, 2, 8)))
    with pytest.raises(ArgumentError, match="no head for masked tokens"):
        model.logits(mo.zeros((1, 2, 8)))
    with pytest.raises(ArgumentError, match="is no language model"):
        mo.models.generate(model, [1])


@pytest.mark.parametrize("name", ["prenorm-small", "bert-base"])
def test_a_compiled_model_takes_any_length(name: str) -> None:
    """One program for all lengths, with the bits of each length alone; more positions than there are is an error."""
    model = mo.models.create(name, **SMALL[name]).eval()
    call = mo.compile(lambda ids: model(ids), dynamic={"ids": {1: mo.Dim("length", 1, 20)}})
    for length in (3, 16):
        ids = mo.arange(length)[None, :] % 50
        assert call(ids).numpy().tobytes() == model(ids).numpy().tobytes()
    assert call.stats["recompiles"] == 0
    with pytest.raises(IndexError):
        call(mo.zeros((1, 17), dtype=mo.int64))

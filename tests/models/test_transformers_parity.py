"""Models equal those of the transformers library on random weights, odd configurations included."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo

transformers = pytest.importorskip("transformers", reason="the transformers library is the reference here")
torch = pytest.importorskip("torch", reason="the transformers library computes with it")

RNG = np.random.default_rng(3)
IDS = RNG.integers(0, 61, (2, 9))


def _disturb(theirs: Any) -> None:
    """Weights larger than the usual first ones, and biases and statistics that are not 0."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in [*theirs.named_parameters(), *theirs.named_buffers()]:
            if not name.endswith(("weight", "bias", "running_mean", "running_var", "cls_token", "embeddings")):
                continue
            scale = 0.1 if "embed" in name or "wte" in name or "shared" in name else 0.3
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * scale
            noise = noise.abs() if "running_var" in name else noise
            parameter.copy_(parameter + noise if "norm" in name.lower() or "ln_" in name else noise)


def _loaded(theirs: Any, settings: dict[str, Any], rename: Any = lambda name: name) -> Any:
    """Our model with the weights of theirs, both in float64."""
    theirs = theirs.double().eval()
    _disturb(theirs)
    ours = mo.models.from_config({**theirs.config.to_dict(), **settings}, dtype=mo.float64).eval()
    own = ours.state_dict()
    given = {rename(name): value.detach().numpy() for name, value in theirs.named_parameters()}
    ours.load_state_dict({name: value for name, value in given.items() if name in own})
    return ours


def _check(found: mo.Tensor, wanted: Any, off: float = 1e-9) -> None:
    wanted = wanted.detach().numpy()
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=off * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("settings", [
    {"n_head": 2},
    {"n_head": 3, "activation_function": "relu", "layer_norm_epsilon": 1e-3, "n_inner": 20,
     "tie_word_embeddings": False},
    {"n_head": 1, "activation_function": "gelu", "scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False},
])
def test_gpt2(settings: dict[str, Any]) -> None:
    config = transformers.GPT2Config(vocab_size=61, n_positions=16, n_embd=12, n_layer=2, **settings)
    theirs = transformers.GPT2LMHeadModel(config)
    ours = _loaded(theirs, {}, lambda name: name.removeprefix("transformer."))
    _check(ours(mo.asarray(IDS)), theirs(torch.tensor(IDS)).logits)


@pytest.mark.parametrize("settings", [
    {"num_attention_heads": 4, "num_key_value_heads": 4},
    {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 18, "head_dim": 4, "attention_bias": True,
     "hidden_act": "gelu", "tie_word_embeddings": True, "rms_norm_eps": 1e-3, "rope_theta": 500.0},
    {"num_attention_heads": 3, "num_key_value_heads": 1, "mlp_bias": True, "max_position_embeddings": 64,
     "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 16, "rope_theta": 10000.0}},
])
def test_llama(settings: dict[str, Any]) -> None:
    config = transformers.LlamaConfig(**{"vocab_size": 61, "hidden_size": 24, "intermediate_size": 20,
                                         "num_hidden_layers": 2, "max_position_embeddings": 16, **settings})
    theirs = transformers.LlamaForCausalLM(config)
    ours = _loaded(theirs, {})
    _check(ours(mo.asarray(IDS)), theirs(torch.tensor(IDS)).logits, 1e-6)  # their norms and angles are float32 always


@pytest.mark.parametrize("settings", [
    {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.3, "logits_scaling": 8.0},
    {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "logits_scaling": 0.5},
])
def test_granite(settings: dict[str, Any]) -> None:
    config = transformers.GraniteConfig(**{
        "vocab_size": 61, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 16, **settings})
    theirs = transformers.GraniteForCausalLM(config)
    _check(_loaded(theirs, {})(mo.asarray(IDS)), theirs(torch.tensor(IDS)).logits, 1e-6)


@pytest.mark.parametrize("settings", [
    {"num_attention_heads": 2},
    {"num_attention_heads": 3, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3, "type_vocab_size": 3},
])
def test_bert(settings: dict[str, Any]) -> None:
    config = transformers.BertConfig(vocab_size=61, hidden_size=12, num_hidden_layers=2, intermediate_size=20,
                                     max_position_embeddings=16, **settings)
    theirs = transformers.BertForPreTraining(config)
    ours = _loaded(theirs, {})
    mask, types = np.ones((2, 9), np.int64), RNG.integers(0, 2, (2, 9))
    mask[1, 6:] = 0
    wanted = theirs(torch.tensor(IDS), attention_mask=torch.tensor(mask), token_type_ids=torch.tensor(types))
    hidden = theirs.bert(torch.tensor(IDS), attention_mask=torch.tensor(mask), token_type_ids=torch.tensor(types))
    found = ours(mo.asarray(IDS), mask, mo.asarray(types))
    _check(found, hidden.last_hidden_state)
    _check(ours.pooled(found), hidden.pooler_output)
    _check(ours.logits(found), wanted.prediction_logits)
    _check(ours(mo.asarray(IDS)), theirs.bert(torch.tensor(IDS)).last_hidden_state)


@pytest.mark.parametrize("settings", [
    {"num_heads": 2, "d_kv": 6},
    {"num_heads": 3, "d_kv": 5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
     "num_decoder_layers": 1, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 7},
    {"num_heads": 1, "d_kv": 4, "feed_forward_proj": "gated-silu", "layer_norm_epsilon": 1e-3},
])
def test_t5(settings: dict[str, Any]) -> None:
    config = transformers.T5Config(vocab_size=61, d_model=12, d_ff=20, num_layers=2, decoder_start_token_id=0,
                                   **settings)
    theirs = transformers.T5ForConditionalGeneration(config)
    ours = _loaded(theirs, {})
    mask, start = np.ones((2, 9), np.int64), np.concatenate([np.zeros((2, 1), np.int64), IDS[:, :5]], axis=1)
    mask[0, 5:] = 0
    wanted = theirs(input_ids=torch.tensor(IDS), attention_mask=torch.tensor(mask),
                    decoder_input_ids=torch.tensor(start))
    _check(ours(mo.asarray(IDS), mo.asarray(start), mask), wanted.logits, 1e-6)  # their norms are float32 always


def test_t5_buckets() -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    from morpho.models.seq2seq.t5 import buckets

    for both, count, most in ((True, 32, 128), (False, 32, 128), (True, 8, 7), (False, 12, 50)):
        wanted = T5Attention._relative_position_bucket(torch.arange(-500, 501), both, count, most).numpy()
        found = buckets(both, count, most)[np.arange(-500, 501).clip(-most, most) + most]
        assert (found == wanted).all()


@pytest.mark.parametrize("kind", ["gpt2", "llama", "t5"])
def test_greedy_text(kind: str) -> None:
    """The same tokens as their own generation."""
    if kind == "gpt2":
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=61, n_positions=32, n_embd=12, n_layer=2, n_head=2, eos_token_id=None, bos_token_id=None))
    elif kind == "llama":
        theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=61, hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=32, eos_token_id=None, bos_token_id=None))
    else:
        theirs = transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=61, d_model=12, d_kv=6, d_ff=20, num_layers=2, num_heads=2, decoder_start_token_id=0,
            eos_token_id=None, pad_token_id=0))
    settings = {} if kind == "llama" else {"n_positions": 32}
    ours = _loaded(theirs, settings, lambda name: name.removeprefix("transformer."))
    wanted = theirs.generate(torch.tensor(IDS[:1]), max_new_tokens=8, do_sample=False)[0].tolist()
    assert [*mo.models.generate(ours, IDS[0], max_new_tokens=8)] == wanted[-8:]


@pytest.mark.parametrize("settings", [
    {"num_attention_heads": 2},
    {"num_attention_heads": 3, "qkv_bias": False, "hidden_act": "gelu_new", "num_channels": 1, "layer_norm_eps": 1e-3},
    {"num_attention_heads": 1, "num_labels": 2},  # which config.json does not say
])
def test_vit_from_its_folder(settings: dict[str, Any], tmp_path: Any) -> None:
    config = transformers.ViTConfig(**{"hidden_size": 12, "num_hidden_layers": 2, "intermediate_size": 20,
                                       "image_size": 12, "patch_size": 4, "num_labels": 5, **settings})
    theirs = transformers.ViTForImageClassification(config).eval()
    _disturb(theirs)
    theirs.save_pretrained(tmp_path)
    images = RNG.standard_normal((2, config.num_channels, 12, 12)).astype(np.float32)
    _check(mo.models.load(tmp_path)(mo.asarray(images)), theirs(torch.tensor(images)).logits, 1e-5)


@pytest.mark.parametrize("kind", ["gpt2", "bert", "t5", "llama"])
def test_folders_as_the_library_writes_them(kind: str, tmp_path: Any) -> None:
    """config.json and model.safetensors, in shards too, float32."""
    theirs = {
        "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=61, n_positions=16, n_embd=12, n_layer=1, n_head=2)),
        "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(
            vocab_size=61, hidden_size=12, num_hidden_layers=1, intermediate_size=20, num_attention_heads=2)),
        "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=61, d_model=12, d_kv=6, d_ff=20, num_layers=1, num_heads=2)),
        "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=61, hidden_size=12, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2)),
    }[kind]().eval()
    _disturb(theirs)
    theirs.save_pretrained(tmp_path, max_shard_size="3KB")
    ours, ids = mo.models.load(tmp_path), torch.tensor(IDS)
    if kind == "bert":
        found, wanted = ours.logits(ours(mo.asarray(IDS))), theirs(ids).logits
    elif kind == "t5":
        found, wanted = ours(mo.asarray(IDS), mo.asarray(IDS)), theirs(input_ids=ids, decoder_input_ids=ids).logits
    else:
        found, wanted = ours(mo.asarray(IDS)), theirs(ids).logits
    _check(found, wanted, 1e-5)


@pytest.mark.parametrize(("block", "layers"), [("basic", [1, 2]), ("bottleneck", [2, 1])])
def test_a_folder_of_resnet(block: str, layers: list[int], tmp_path: Path) -> None:
    """As the library saves it; saved again it has torchvision's names, and the same numbers."""
    widths = [4, 8] if block == "basic" else [16, 32]
    theirs = transformers.ResNetForImageClassification(transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=widths, depths=layers, layer_type=block, num_labels=5)).eval()
    _disturb(theirs)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = mo.models.load(tmp_path / "theirs").eval()
    images = RNG.standard_normal((2, 3, 32, 32)).astype(np.float32)
    wanted = theirs(torch.tensor(images)).logits
    _check(ours(mo.asarray(images)), wanted, 1e-5)
    mo.models.save(tmp_path / "ours", ours)
    assert "layer1.0.bn1.running_mean" in mo.weights.load(tmp_path / "ours")
    _check(mo.models.load(tmp_path / "ours").eval()(mo.asarray(images)), wanted, 1e-5)


def test_folders_of_other_resnets_are_refused(tmp_path: Path) -> None:
    for change, text in (({"hidden_sizes": [4, 12]}, r"hidden_sizes is \[4, 12\], and only \[4, 8\]"),
                         ({"downsample_in_first_stage": True}, "downsample_in_first_stage is True"),
                         ({"hidden_act": "gelu"}, "hidden_act is 'gelu'")):
        config = {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1], "layer_type": "basic", **change}
        transformers.ResNetConfig(**config).save_pretrained(tmp_path)
        with pytest.raises(mo.errors.ArgumentError, match=text):
            mo.models.load(tmp_path)


@pytest.mark.parametrize(("block", "layers"), [("basic", [1, 2]), ("bottleneck", [2, 1])])
def test_resnet(block: str, layers: list[int]) -> None:
    """Against the library's ResNet, whose names are others; its running statistics too."""
    widths = [4, 8] if block == "basic" else [16, 32]
    theirs = transformers.ResNetForImageClassification(transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=widths, depths=layers, layer_type=block, num_labels=5)).double().eval()
    _disturb(theirs)
    ours = mo.models.create("resnet18", block=block, layers=layers, width=4, num_classes=5, dtype=mo.float64).eval()

    def renamed(name: str) -> str:
        name = name.replace("resnet.embedder.embedder.convolution", "conv1").replace("classifier.1", "fc")
        name = name.replace("resnet.embedder.embedder.normalization", "bn1").replace("resnet.encoder.stages.", "layer")
        if name.startswith("layer"):
            stage, number, rest = re.fullmatch(r"layer(\d+)\.layers\.(\d+)\.(.*)", name).groups()  # type: ignore
            rest = rest.replace("shortcut.convolution", "downsample.0")
            rest = rest.replace("shortcut.normalization", "downsample.1")
            rest = re.sub(r"layer\.(\d)\.convolution", lambda found: f"conv{int(found[1]) + 1}", rest)
            rest = re.sub(r"layer\.(\d)\.normalization", lambda found: f"bn{int(found[1]) + 1}", rest)
            name = f"layer{int(stage) + 1}.{number}.{rest}"
        return name

    own = ours.state_dict()
    given = {renamed(name): value.numpy() for name, value in theirs.state_dict().items()}
    ours.load_state_dict({name: value for name, value in given.items() if name in own})
    images = RNG.standard_normal((2, 3, 32, 32))
    _check(ours(mo.asarray(images)), theirs(torch.tensor(images)).logits)

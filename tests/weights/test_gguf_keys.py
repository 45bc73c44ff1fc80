"""Every key of a GGUF header is used, known not to matter, or an error that names it and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import MorphoError
from morpho.weights import FileFault
from morpho.weights.gguf.keys import GENERAL, MODEL, TOKENIZER, check_model

TEXTS = mo.weights.train_bpe("so 12 on 12 and 12 so 12 on 12", vocab_size=262, specials=["<s>", "</s>", "<pad>"])
BASE: dict[str, Any] = {
    "general.architecture": "llama", "general.name": "tiny", "general.type": "model", "general.file_type": 0,
    "general.license.name": "none", "llama.block_count": 1, "llama.context_length": 32, "llama.embedding_length": 16,
    "llama.feed_forward_length": 12, "llama.attention.head_count": 2, "llama.attention.head_count_kv": 1,
    "llama.attention.key_length": 8, "llama.attention.value_length": 8, "llama.rope.dimension_count": 8,
    "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 100.0, "llama.vocab_size": 262,
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.padding_token_id": 2, "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": mo.weights.chatml(),
}
CHANGED: dict[str, Any] = {
    "llama.rope.scaling.type": "linear", "general.architecture": "falcon", "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.model": "bert",
    "tokenizer.ggml.add_space_prefix": True, "llama.attention.scale": 2.0, "llama.attention.sliding_window": 2,
    "llama.attention.layer_norm_epsilon": 0.5, "general.sampling.temp": 0.25, "general.sampling.top_k": 4,
    "general.sampling.top_p": 0.5, "tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 6,
    "tokenizer.chat_template": "", "tokenizer.ggml.add_eos_token": True, "tokenizer.ggml.add_bos_token": True,
    "llama.rope.scaling.factor": 4.0, "llama.rope.scale_linear": 4.0,
}
# Used where another key is not there, or with another one.
BESIDE = {"llama.attention.layer_norm_epsilon": ["llama.attention.layer_norm_rms_epsilon"]}
# 32 and "linear" are what is meant without them; a window may be longer than the text.
# The unknown token is of another tokenizer than this file's.
SAYS_NOTHING = {"general.alignment", "llama.rope.scaling.type", "llama.attention.sliding_window",
                "tokenizer.ggml.unknown_token_id", "llama.expert_used_count"}
WRONG: list[Any] = ["x", 2.5, True, 300, ["a"], [1, 2]]


def _write(path: Path, fields: dict[str, Any], extra: dict[str, np.ndarray] | None = None) -> Path:
    writer = gguf.GGUFWriter(str(path), fields.get("general.architecture", "llama"))
    for key, value in fields.items():
        if key == "general.architecture" and isinstance(value, str):
            continue
        add = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32,
               list: writer.add_array}[type(value)]
        add(key, value)
    if "tokenizer.ggml.model" in fields:
        written = {**TEXTS.vocabulary, **TEXTS.specials}
        texts = sorted(written, key=written.__getitem__)
        writer.add_token_list(texts)
        writer.add_token_types([3 if text in TEXTS.specials else 1 for text in texts])
        writer.add_token_merges([" ".join(pair) for pair in TEXTS.merges])
    rng = np.random.default_rng(3)
    shapes = {"token_embd": (262, 16), "output_norm": (16,), "output": (262, 16), "blk.0.attn_norm": (16,),
              "blk.0.ffn_norm": (16,), "blk.0.attn_q": (16, 16), "blk.0.attn_k": (8, 16), "blk.0.attn_v": (8, 16),
              "blk.0.attn_output": (16, 16), "blk.0.ffn_gate": (12, 16), "blk.0.ffn_up": (12, 16),
              "blk.0.ffn_down": (16, 12)}
    for name, shape in shapes.items():
        writer.add_tensor(name + ".weight", rng.standard_normal(shape).astype(np.float32))
    for name, array in (extra or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _seen(path: Path, **others: Any) -> list[Any]:
    model, tokenizer = mo.models.load_with_tokenizer(path, **others)
    with mo.settings(device="reference"):
        logits = np.round(model(mo.asarray([[3, 1, 4, 1, 5, 9]])).numpy(), 3).tolist()
    name = mo.weights.load_gguf(path).config.name
    return [logits, model.context, model.eos_token_id, model.defaults, tokenizer.encode("on 12"), tokenizer.eos,
            tokenizer.bos, tokenizer.pad, tokenizer.chat_template, name]


def _logits(path: Path) -> np.ndarray:
    return mo.models.load(path)(mo.asarray([[3, 1, 4, 1, 5, 9, 2, 6]])).numpy()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return _seen(_write(tmp_path_factory.mktemp("gguf") / "base.gguf", BASE))


TABLE = {**GENERAL, **TOKENIZER, **{f"llama.{name}": key for name, key in MODEL.items()}}
KEYS = [key for key in TABLE if not key.endswith(("*", "ggml.tokens", "ggml.merges", "ggml.token_type", "ggml.scores"))]


def test_every_key(base: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "changed.gguf"
    for key in KEYS:
        known, held = TABLE[key], BASE.get(key)
        other = CHANGED.get(key, held + 1 if type(held) is int else held * 2 if type(held) is float else
                            f"{held}x" if isinstance(held, str) else 7)
        for value in [None, other, *WRONG]:
            left = {name: each for name, each in BASE.items() if name not in (key, *BESIDE.get(key, ()))}
            fields = left if value is None else {**left, key: value}
            if (value == held and type(value) is type(held)) or (key == "general.architecture" and value is None):
                continue
            try:
                check_model(fields, "changed.gguf")
            except FileFault as error:
                assert f"changed.gguf: {key} is" in str(error) and known.role != "irrelevant"
                continue
            if known.role == "used":
                _check_used(base, key, value, _write(path, fields))


def _check_used(base: list[Any], key: str, value: Any, path: Path) -> None:
    try:
        after = _seen(path)
    except MorphoError as error:
        named = "llama.expert_used_count" if key == "llama.expert_count" else key  # what experts need besides
        assert named.removeprefix("llama.") in str(error), (key, value, error)
    else:
        assert after != base or value is None or key in SAYS_NOTHING, f"{key}={value!r} changes nothing"


def test_keys_that_nobody_knows(base: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    for key, value in (("llama.logit_scale", 0.5), ("llama.rope.scaling.type", "su"),
                       ("llama.attn_logit_softcapping", 30.0), ("llama.swin_norm", True), ("general.mood", "glad"),
                       ("tokenizer.ggml.precompiled_charsmap", "x"), ("llama.rope.dimension_count", 4),
                       ("llama.attention.value_length", 4), ("general.type", "adapter"), ("split.count", 3)):
        _write(path, {**BASE, key: value})
        with pytest.raises(FileFault, match=rf"odd\.gguf: {key} is"):
            mo.models.load_with_tokenizer(path)
    _write(path, {**BASE, "llama.swin_norm": True})
    assert _seen(path, ignore=["llama.swin_norm"])[:-1] == base[:-1]
    _write(path, {**BASE, "llama.rope.scaling.factor": 4.0, "llama.rope.scale_linear": 2.0})
    with pytest.raises(FileFault, match=r"rope\.scaling\.factor is 4\.0, and rope\.scale_linear 2\.0"):
        mo.models.load(path)


def test_rope_window_and_scale_as_a_folder_says_them(tmp_path: Path) -> None:
    """The same numbers as a model whose configuration says the same."""
    plain = mo.models.load(_write(tmp_path / "plain.gguf", BASE))
    factors = np.array([1.0, 2.0, 3.0, 8.0], np.float32)
    for number, (fields, settings, extra) in enumerate((
            ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
             {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, {}),
            ({"llama.rope.scale_linear": 2.0}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, {}),
            ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}, {}, {}),
            ({}, {"rope_scaling": {"rope_type": "factors", "factors": factors.tolist()}},
             {"rope_freqs.weight": factors}),
            ({"llama.attention.sliding_window": 3}, {"sliding_window": 3}, {}),
            ({"llama.attention.scale": 0.5}, {"attention_scale": 0.5}, {}),
            ({"llama.attention.scale": 0.0, "llama.attention.sliding_window": 0}, {}, {}))):
        found = mo.models.load(_write(tmp_path / f"{number}.gguf", {**BASE, **fields}, extra))
        twin = mo.models.from_config({**plain.config, **settings})
        twin.load_state_dict(plain.state_dict())
        ids = mo.asarray([[3, 1, 4, 1, 5, 9, 2, 6]])
        assert (found(ids).numpy() == twin(ids).numpy()).all(), fields
        assert (found(ids).numpy() == plain(ids).numpy()).all() == (not settings), fields
        if "sliding_window" in settings:  # also through the cache
            made = [*mo.models.generate(found, [3, 1, 4], max_new_tokens=6, stop=[])]
            whole = found(mo.asarray([[3, 1, 4, *made]])).numpy()[0, 2:-1]
            assert made == [int(row.argmax()) for row in whole]


YARN = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 8}


@pytest.mark.parametrize("turns", [{}, {"beta_fast": 2.0, "beta_slow": 0.25}])
def test_yarn_is_that_of_llama_cpp(turns: dict[str, float], tmp_path: Path) -> None:
    """Against the file's own tensors in float64: pairs side by side, angles blended between those of the text and
    stretched ones along the pairs, cosines and sines times 0.1 ln(factor) + 1."""
    path = _write(tmp_path / "yarn.gguf", {**BASE, **YARN, "llama.context_length": 32,
                                           **{f"llama.rope.scaling.yarn_{key}": value for key, value in turns.items()}})
    ids = np.asarray([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8])
    weights = {name: tensor.numpy().astype(np.float64) for name, tensor in mo.weights.load_gguf(path).tensors.items()}
    ours = mo.models.load(path)(mo.asarray(ids[None])).numpy()[0]
    right = _in_float64(weights, ids, turns)
    assert np.abs(ours - right).max() < 1e-4 * np.abs(right).max()
    plain = _logits(_write(tmp_path / "plain.gguf", BASE))
    assert np.abs(plain[0] - right[:8]).max() > 1e-2 * np.abs(right).max()  # it is not nothing


def _in_float64(weights: dict[str, np.ndarray], ids: np.ndarray, turns: dict[str, float]) -> np.ndarray:
    depth, theta, factor, original = 8, 100.0, 4.0, 8
    corners = [depth * np.log(original / (turns.get(name, usual) * 2 * np.pi)) / (2 * np.log(theta))
               for name, usual in (("beta_fast", 32.0), ("beta_slow", 1.0))]
    low, high = max(0.0, np.floor(corners[0])), min(depth - 1.0, np.ceil(corners[1]))
    pairs = np.arange(depth // 2)
    kept = 1 - np.clip((pairs - low) / max(0.001, high - low), 0, 1)
    angle = np.arange(len(ids))[:, None] * theta ** (-2 * pairs / depth)
    angle = angle / factor * (1 - kept) + angle * kept
    turn = np.exp(1j * angle) * (1 + 0.1 * np.log(factor))

    def normed(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weights[name + ".weight"]

    def turned(x: np.ndarray) -> np.ndarray:
        pair = x.reshape(len(ids), -1, depth // 2, 2)
        pair = (pair[..., 0] + 1j * pair[..., 1]) * turn[:, None]
        return np.stack([pair.real, pair.imag], -1).reshape(len(ids), -1, depth)

    x = weights["token_embd.weight"][ids]
    h = normed(x, "blk.0.attn_norm")
    q, k, v = (h @ weights[f"blk.0.attn_{name}.weight"].T for name in "qkv")
    scores = np.einsum("qhd,kd->hqk", turned(q), turned(k)[:, 0]) / np.sqrt(depth)
    scores = np.where(np.tri(len(ids), dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    seen = np.einsum("hqk,kd->qhd", shares / shares.sum(-1, keepdims=True), v).reshape(len(ids), -1)
    x = x + seen @ weights["blk.0.attn_output.weight"].T
    h = normed(x, "blk.0.ffn_norm")
    gate = h @ weights["blk.0.ffn_gate.weight"].T
    x = x + (gate / (1 + np.exp(-gate)) * (h @ weights["blk.0.ffn_up.weight"].T)) @ weights["blk.0.ffn_down.weight"].T
    return normed(x, "output_norm") @ weights["output.weight"].T  # type: ignore[no-any-return]


def test_parts_of_yarn_that_are_not_computed_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    for key, value in (("yarn_ext_factor", 0.5), ("yarn_attn_factor", 2.0), ("yarn_log_multiplier", 0.1),
                       ("yarn_beta_fast", 0.0), ("yarn_mood", 1.0), ("original_context_length", 0)):
        _write(path, {**BASE, **YARN, f"llama.rope.scaling.{key}": value})
        with pytest.raises(FileFault, match=rf"odd\.gguf: llama\.rope\.scaling\.{key} is"):
            mo.models.load(path)
    with pytest.raises(FileFault, match=r"rope_freqs\.weight divides angles that rope\.scaling\.type yarn stretches"):
        mo.models.load(_write(path, {**BASE, **YARN}, {"rope_freqs.weight": np.ones(4, np.float32)}))


def test_what_stands_around_a_text(tmp_path: Path) -> None:
    path = _write(tmp_path / "around.gguf", {**BASE, "tokenizer.ggml.add_bos_token": True,
                                             "tokenizer.ggml.add_eos_token": True})
    found = mo.weights.load_gguf(path).tokenizer
    assert found.encode("so") == [0, *TEXTS.encode("so"), 1] and found.decode(found.encode("so")) == "so"
    mo.weights.save_tokenizer(tmp_path, found)
    again = mo.weights.load_tokenizer(tmp_path)
    assert isinstance(again, mo.weights.BytePairs) and again.encode("so") == found.encode("so") and again.pad == 2
    import tokenizers
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert library.encode("so on").ids == again.encode("so on")
    fields = {key: value for key, value in BASE.items() if "bos_token_id" not in key}
    _write(path, {**fields, "tokenizer.ggml.add_bos_token": True})
    with pytest.raises(FileFault, match=r"add_bos_token is True, and there is no bos_token_id"):
        mo.weights.load_gguf(path).tokenizer  # noqa: B018


def test_ends_and_sampling(tmp_path: Path) -> None:
    path = _write(tmp_path / "ends.gguf", {**BASE, "tokenizer.ggml.eot_token_id": 5, "general.sampling.temp": 0.5,
                                           "general.sampling.top_k": 3})
    model = mo.models.load(path)
    assert model.eos_token_id == [1, 5]
    assert (model.defaults.temperature, model.defaults.top_k, model.defaults.top_p) == (0.5, 3, None)

"""Scores of pairs and rankings: by a cross-encoder as `transformers` writes it, and by vectors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import Running, serving

from morpho.serve.hosting.engines import EngineOptions
from morpho.serve.hosting.registry import Spec

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

QUERY = "the cat"
TEXTS = ["the mat", "a cat sat on the mat", "dogs", "the cat the cat [SEP] sat"]


def cross_encoder(folder: Path, activation: str | None, roberta: bool = False) -> Any:
    """A tiny random cross-encoder, as its library and this server read it."""
    library = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    library.normalizer = tokenizers.normalizers.BertNormalizer()
    library.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    specials = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    library.train_from_iterator(["the cat sat on the mat dogs a"] * 4, tokenizers.trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=specials, show_progress=False))
    if roberta:
        library.post_processor = tokenizers.processors.RobertaProcessing(("[SEP]", 2), ("[CLS]", 1))
    else:
        library.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=library, unk_token="[UNK]", cls_token="[CLS]",
                                                sep_token="[SEP]", pad_token="[PAD]", model_input_names=[
        "input_ids", *([] if roberta else ["token_type_ids"]), "attention_mask"])
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"vocab_size": len(fast), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
             "intermediate_size": 32, "max_position_embeddings": 40, "num_labels": 1, "initializer_range": 0.5}
    if roberta:
        config = transformers.RobertaConfig(**sizes, type_vocab_size=1, pad_token_id=3)
        model = transformers.RobertaForSequenceClassification(config).eval()
    else:
        model = transformers.BertForSequenceClassification(transformers.BertConfig(**sizes)).eval()
    model.save_pretrained(folder)
    if activation is not None:
        config_file = folder / "config.json"
        said = json.loads(config_file.read_text())
        config_file.write_text(json.dumps({**said, "sentence_transformers": {"activation_fn": activation}}))

    def scores(query: str, texts: list[str]) -> np.ndarray:
        inputs = [fast(query, text, truncation="only_second", max_length=36 if roberta else 40, return_tensors="pt",
                       split_special_tokens=True) for text in texts]
        with torch.no_grad():
            return np.array([float(model(**each).logits[0, 0]) for each in inputs])
    return scores


@pytest.fixture(scope="module")
def ranking(tmp_path_factory: pytest.TempPathFactory, encoder: Path, chat_model: Path) -> Iterator[tuple[Running, Any]]:
    folder = tmp_path_factory.mktemp("cross")
    theirs = {"sigmoid": cross_encoder(folder / "sigmoid", None),
              "logits": cross_encoder(folder / "logits", "torch.nn.modules.linear.Identity"),
              "roberta": cross_encoder(folder / "roberta", None, roberta=True)}
    with serving(*(Spec(name, folder / name) for name in theirs), Spec("encoder", encoder), Spec("tiny", chat_model),
                 make_engine=EngineOptions(kv_bytes=1 << 19, warm=False)) as running:
        yield running, theirs


@pytest.mark.parametrize("name", ["sigmoid", "logits", "roberta"])
def test_scores_are_those_of_transformers(ranking: tuple[Running, Any], name: str) -> None:
    server, theirs = ranking
    expected = theirs[name](QUERY, TEXTS)
    expected = expected if name == "logits" else 1 / (1 + np.exp(-expected))
    body = server.post("/v1/score", model=name, text_1=QUERY, text_2=TEXTS).json()
    found = [each["score"] for each in body["data"]]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
    assert [each["index"] for each in body["data"]] == [0, 1, 2, 3] and body["usage"]["total_tokens"] > 20
    pairs = server.post("/score", model=name, queries=[QUERY] * 4, documents=TEXTS).json()["data"]
    assert [each["score"] for each in pairs] == found
    ranked = server.post("/v1/rerank", model=name, query=QUERY, documents=[TEXTS[0], {"text": TEXTS[1]}, *TEXTS[2:]],
                         top_n=3).json()
    assert [each["index"] for each in ranked["results"]] == sorted(range(4), key=lambda place: -found[place])[:3]
    for each in ranked["results"]:
        assert each["relevance_score"] == found[each["index"]] and each["document"]["text"] == TEXTS[each["index"]]
    long = "the mat " * 60
    np.testing.assert_allclose(server.post("/v1/score", model="logits", text_1=QUERY, text_2=long).json()["data"][0][
        "score"], theirs["logits"](QUERY, [long])[0], rtol=2e-5, atol=1e-6)


def test_vectors_are_compared_by_their_angle(ranking: tuple[Running, Any]) -> None:
    server, _ = ranking
    texts = [QUERY, *TEXTS]
    data = server.post("/v1/embeddings", model="encoder", input=texts).json()["data"]
    vectors = np.array([each["embedding"] for each in data])
    found = server.post("/v1/score", model="encoder", data_1=QUERY, data_2=TEXTS).json()["data"]
    np.testing.assert_allclose([each["score"] for each in found], vectors[1:] @ vectors[0], rtol=1e-6)
    ranked = server.post("/rerank", model="encoder", query=QUERY, documents=TEXTS, return_documents=False).json()
    assert "document" not in ranked["results"][0] and len(ranked["results"]) == 4


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/rerank", {"documents": TEXTS}), ("/v1/rerank", {"query": QUERY, "documents": []}), ("/v1/score", {}),
    ("/v1/rerank", {"query": QUERY, "documents": [7]}), ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a"] * 3}),
    ("/v1/rerank", {"query": QUERY, "documents": TEXTS, "nonsense": 1}), ("/v1/score", {"text_1": "", "text_2": "x"}),
    ("/v1/rerank", {"query": "cat " * 60, "documents": TEXTS}), ("/v1/score", {
        "model": "tiny", "text_1": "a", "text_2": "b"}), ("/v1/score", {
            "model": "encoder", "text_1": "the cat " * 60, "text_2": "b"})])
def test_what_is_wrong_is_told(ranking: tuple[Running, Any], path: str, body: dict[str, Any]) -> None:
    response = ranking[0].post(path, **body)
    assert response.status_code == 400 and response.json()["error"]["message"], response.text

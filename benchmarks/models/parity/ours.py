"""What Morpho computes for a case, from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.models.parity.inputs import Arrays
from morpho.models.text.generators import lending

NEW = 6  # tokens that are made


def computed(folder: Path, kind: str, given: Arrays, texts: bool = True) -> Arrays:
    """The results of a case by name, those of padding left out; without `texts` no tokens are made."""
    model = mo.models.load(folder)
    found = KINDS[kind](model, given)
    return {name: np.asarray(value() if callable(value) else value) for name, value in found.items()
            if texts or name != "tokens"}


def _decoder(model: Any, given: Arrays) -> dict[str, Any]:
    seen = given["mask"] == 1
    masked = model(mo.asarray(given["ids"]), attention_mask=given["mask"]).numpy()[seen]
    prompt = given["ids"][1]
    return {"logits": masked, "tokens": lambda: [*mo.models.generate(model, prompt, max_new_tokens=NEW)]}


def cached_error(folder: Path, given: Arrays) -> float:
    """How far tokens through a cache, a piece and then one by one, are from the whole text at once."""
    model = mo.models.load(folder)
    ids = given["ids"][1].tolist()
    whole = model(mo.asarray([ids])).numpy()[0]
    cut = len(ids) // 2
    with lending(model) as lend:
        generator = lend(len(ids))
        rows = [generator.start(ids[:cut]), *(generator.step(token) for token in ids[cut:])]
    wanted = whole[cut - 1:]
    return float(np.abs(np.stack(rows) - wanted).max() / max(1.0, np.abs(wanted).max()))


def _head(name: str) -> Any:
    def run(model: Any, given: Arrays) -> dict[str, Any]:
        seen = given["mask"] == 1
        ids, mask = mo.asarray(given["ids"]), given["mask"]
        if name == "decoder classify":
            return {"logits": model.classify(ids, mask).numpy()}
        if name in ("decoder tokens", "decoder spans"):
            return {"logits": model(ids, mask).numpy()[seen]}
        x = model(ids, mask)
        if name == "spans":
            return {"start": model.span_logits(x)[0].numpy()[seen], "end": model.span_logits(x)[1].numpy()[seen]}
        if name == "classify":
            return {"logits": model.classify(x, mask).numpy()}
        if name == "replaced":
            return {"logits": model.token_logits(x).numpy()[seen][:, 0]}
        return {"logits": (model.token_logits(x) if name == "tokens" else model.logits(x)).numpy()[seen]}
    return run


def _bart(model: Any, given: Arrays) -> dict[str, Any]:
    logits = model(given["ids"], mo.asarray(given["start"]), given["mask"]).numpy()
    prompt = given["ids"][1][given["mask"][1] == 1]
    return {"logits": logits, "tokens": lambda: [*mo.models.generate(model, prompt, max_new_tokens=NEW)]}


def _bart_spans(model: Any, given: Arrays) -> dict[str, Any]:
    seen = given["mask"] == 1
    found = model.span_logits(given["ids"], given["mask"])
    return {"start": found[0].numpy()[seen], "end": found[1].numpy()[seen]}


def _whisper(model: Any, given: Arrays) -> dict[str, Any]:
    logits = model(given["features"], mo.asarray(given["start"])).numpy()
    return {"logits": logits, "tokens": lambda: [*model.transcribe(given["features"][:1], max_new_tokens=NEW)]}


def _clip(model: Any, given: Arrays) -> dict[str, Any]:
    found = model(given["ids"], given["images"])
    return {"logits": found.logits.numpy(), "texts": found.text_embeds.numpy(), "images": found.image_embeds.numpy()}


KINDS: dict[str, Any] = {
    "decoder": _decoder, "forward": lambda model, given: {"logits": model(mo.asarray(given["ids"])).numpy()},
    "bart": _bart, "bart spans": _bart_spans, "whisper": _whisper, "clip": _clip,
    "bart classify": lambda model, given: {"logits": model.classify(given["ids"], given["mask"]).numpy()},
    **{name: _head(name) for name in ("masked", "classify", "tokens", "spans", "replaced", "decoder classify",
                                      "decoder tokens", "decoder spans")},
}

"""What the transformers library computes for a case."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.parity.cases import Case
from benchmarks.models.parity.inputs import Arrays, inputs, write_folder
from benchmarks.models.parity.ours import NEW


def reference(case: Case) -> dict[str, Any]:
    """The files of a case's folder, the shapes of its weights, and what the library computes from it."""
    import torch
    import transformers
    from safetensors import safe_open

    transformers.logging.set_verbosity_error()
    kind = getattr(transformers, case.architecture)
    config = kind.config_class(**case.settings)
    config._attn_implementation = case.attention
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        kind(config).save_pretrained(place)
        with safe_open(place / "model.safetensors", "np") as file:
            shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        files = {name: (place / name).read_text() for name in ("config.json", "generation_config.json")
                 if (place / name).exists()}
        files["config.json"] = json.dumps(json.loads(files["config.json"]) | case.changes)
        write_folder(place, files, shapes)
        model = kind.from_pretrained(place, attn_implementation=case.attention).eval()
        given = inputs(case.name, case.kind, json.loads(files["config.json"]))
        with torch.no_grad():
            found = _run(model, case.kind, given)
    return {"files": files, "shapes": shapes, "results": {name: np.asarray(value) for name, value in found.items()}}


def _run(model: Any, kind: str, given: Arrays) -> dict[str, Any]:
    import torch

    put = {name: torch.tensor(value) for name, value in given.items()}
    seen = given["mask"] == 1 if "mask" in given else None
    if kind == "clip":
        found = model(input_ids=put["ids"], pixel_values=put["images"])
        return {"logits": found.logits_per_image, "texts": found.text_embeds, "images": found.image_embeds}
    if kind == "whisper":
        logits = model(input_features=put["features"], decoder_input_ids=put["start"]).logits
        return {"logits": logits, "tokens": _transcribed(model, put["features"][:1])}
    if kind == "decoder":
        tokens = model.generate(put["ids"][1:], max_new_tokens=NEW, do_sample=False)[0, given["ids"].shape[1]:].tolist()
        tokens = tokens[:tokens.index(0)] if 0 in tokens else tokens  # ours end before the end token
        return {"logits": model(put["ids"], attention_mask=put["mask"]).logits[seen], "tokens": tokens}
    if kind == "bart":
        prompt = put["ids"][1:][:, given["mask"][1] == 1]
        tokens = model.generate(prompt, max_new_tokens=NEW, do_sample=False, num_beams=1)[0].tolist()
        end = next((place for place, token in enumerate(tokens) if place and token == 2), len(tokens))
        return {"logits": model(input_ids=put["ids"], attention_mask=put["mask"],
                                decoder_input_ids=put["start"]).logits, "tokens": tokens[1:end]}
    if kind == "forward":
        return {"logits": model(put["ids"]).logits}
    found = model(input_ids=put["ids"], attention_mask=put["mask"])
    if kind == "decoder spans":
        return {"logits": torch.stack([found.start_logits, found.end_logits], -1)[seen]}
    if kind.endswith("spans"):
        return {"start": found.start_logits[seen], "end": found.end_logits[seen]}
    return {"logits": found.logits if kind.endswith("classify") else found.logits[seen]}


def _transcribed(model: Any, features: Any) -> list[int]:
    """The likeliest tokens by whole passes, with the tokens that the configuration forbids."""
    import torch

    config, made = model.config, [model.config.decoder_start_token_id]
    for number in range(NEW):
        logits = model(input_features=features, decoder_input_ids=torch.tensor([made])).logits[0, -1]
        wrong = [*(config.suppress_tokens or ()), *((config.begin_suppress_tokens or ()) if not number else ())]
        logits[[token for token in wrong if token < len(logits)]] = -1e9
        made.append(int(logits.argmax()))
        if made[-1] == config.eos_token_id:
            return made[1:-1]
    return made[1:]

"""A language model as a folder of static files: a page, its scripts, WebAssembly, weights and tokenizer."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.ahead.export import Exported, Part, build, export_library, write_files
from morpho.ahead.functions import name_states, trace
from morpho.ahead.targets import named
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import LanguageModel
from morpho.models.text.generation_keys import USUAL_TOP_K, usual_temperature
from morpho.models.text.generators import CHUNK, LEAST_LENGTH, Generator, evaluating

MOST_CONTEXT = 2048  # positions of a page's cache
TEXT_FILES = ("index.html", "app.js", "worker.js", "text.js", "tokenizer.js", "page.css", "icon.svg", "morpho.js")
MARK = "\x01{}\x01"  # stands for a message while the template is taken apart
_GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+"
         r"|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+")


def page_file(name: str) -> bytes:
    """A file of the page as it lies in the package."""
    return (resources("morpho.ahead") / "page" / name).read_bytes()


# -- the tokenizer -----------------------------------------------------------------------------------------------------
def tokenizer_settings(file: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the page's tokenizer besides tokenizer.json; an error names a form that the page lacks."""
    model = file.get("model") or {}
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        raise _unfit(f"the tokenizer is {model.get('type')!r}" + (" with bytes as tokens" if model.get("byte_fallback")
                                                                  else ""))
    for key in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(key):
            raise _unfit(f"the tokenizer has {key}={model[key]!r}")
    form = None
    normalizer = file.get("normalizer")
    if normalizer is not None:
        form = normalizer.get("type")
        if form not in ("NFC", "NFD", "NFKC", "NFKD"):
            raise _unfit(f"the tokenizer normalises by {form!r}")
    for token in file.get("added_tokens", ()):
        if token.get("lstrip") or token.get("rstrip") or token.get("single_word"):
            raise _unfit(f"the token {token.get('content')!r} strips the text around it")
    before = file.get("pre_tokenizer") or {}
    stages: list[str] = []
    space = False
    for each in before.get("pretokenizers", [before]):
        kind = each.get("type")
        if kind == "ByteLevel":
            space = space or bool(each.get("add_prefix_space"))
            if each.get("use_regex", True):
                stages.append(_GPT2)
        elif kind == "Digits":
            stages.append(r"\p{N}" if each.get("individual_digits") else r"\p{N}+")
        elif kind == "Split" and each.get("behavior") == "Isolated" and not each.get("invert"):
            pattern = each.get("pattern") or {}
            if "Regex" not in pattern:
                raise _unfit("the tokenizer splits at a text")
            stages.append(_for_javascript(pattern["Regex"]))
        else:
            raise _unfit(f"the tokenizer splits by {kind!r}")
    return {"stages": stages, "add_prefix_space": space, "normal_form": form}


def _for_javascript(pattern: str) -> str:
    """A pattern of the tokenizers library in JavaScript's words: white space as Unicode has it, no flags inside."""
    pattern = pattern.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])")
    pattern = pattern.replace(r"\s", r"\p{White_Space}").replace(r"\S", r"\P{White_Space}")
    if "(?i" in pattern or "\\h" in pattern or "++" in pattern:
        raise _unfit(f"the tokenizer's pattern {pattern!r} has no form in JavaScript")
    return pattern


def _unfit(message: str) -> Exception:
    return fail(ArgumentError, "export", f"{message}, which the page has not",
                "use a model with byte pairs, such as smollm2, or serve it: morpho serve")


def chat_parts(tokenizer: Any) -> dict[str, str] | None:
    """The texts of the chat template before a conversation's first message, between answers and next messages, and
    behind messages; none without a template, or where it does more than to put texts around messages."""
    if not tokenizer.chat_template:
        return None
    user, answer, more = MARK.format("u"), MARK.format("a"), MARK.format("v")
    first, tail = _around(_rendered(tokenizer, [("user", user)]), user)
    whole = _rendered(tokenizer, [("user", user), ("assistant", answer), ("user", more)])
    _, rest = _around(whole, answer)
    between, last = _around(rest, more)
    if first + user + tail + answer + between + more + last != whole or tail != last:
        raise _unfit("the chat template changes with the length of the conversation")
    return {"first": first, "between": between, "last": last}


def _rendered(tokenizer: Any, turns: list[tuple[str, str]]) -> str:
    texts = {number: text for text, number in tokenizer.specials.items()}
    return mo.weights.render_chat([{"role": role, "content": text} for role, text in turns], tokenizer.chat_template,
                                  bos_token=texts.get(tokenizer.bos, ""), eos_token=texts.get(tokenizer.eos, ""))


def _around(text: str, mark: str) -> tuple[str, str]:
    before, found, after = text.partition(mark)
    if not found:
        raise _unfit("the chat template changes the text of messages")
    return before, after


# -- the model ---------------------------------------------------------------------------------------------------------
def _check_text(network: Any, folder: Path) -> None:
    if not isinstance(network, LanguageModel) or hasattr(network, "remember") or hasattr(network, "listen"):
        raise fail(ArgumentError, "export", f"{folder.name} is a {type(network).__name__}, which goes on with no text",
                   "export a function of it with mo.export(...)")


def _generator(network: Any, context: int) -> Generator:
    """The functions that `morpho run` calls, with a cache of a power of two of positions."""
    length = LEAST_LENGTH
    while length < min(context, network.context):
        length *= 2
    return Generator(network, min(length, network.context))


def _parts(generator: Generator) -> list[Part]:
    """`prefill` takes a part of a prompt, `decode` one token; both give the logits of the next one."""
    generator.frozen.refresh()
    ids = np.array([[1, 2]], np.int64)
    return [Part("prefill", generator.prefill, (ids, np.asarray(0)), {}),
            Part("decode", generator.decode, (ids[:, :1].copy(), np.asarray(2)), {})]


def export_model(model: Any, path: Any, target: str, name: str = "model", context: int | None = None,
                 weights: str = "auto", threads: int = 1) -> Exported:
    """Write a language model's `prefill` and `decode` as one library; keys and values are states of the caller's."""
    network = mo.models.load(Path(model))
    _check_text(network, Path(model))
    generator = _generator(network, context or MOST_CONTEXT)
    with evaluating(network), mo.no_grad():
        return export_library(_parts(generator), name, Path(path), target, weights, threads)


# -- the site ----------------------------------------------------------------------------------------------------------
def export_site(model: Any, path: Any, context: int | None = None) -> dict[str, Any]:
    """Write a page that talks, for a folder of a language model, and give the figures of what was written.

    Two modules are written: one with relaxed SIMD, which the page takes where the browser rounds a product and a sum
    once, and one that computes that in software. Both have the bits of `morpho run`.
    """
    started = time.perf_counter()
    folder, place = Path(model), Path(path)
    if place.exists() and not place.is_dir():
        raise fail(ArgumentError, "export", f"{place} is a file", "give a folder")
    network, tokenizer = mo.models.load_with_tokenizer(folder)
    _check_text(network, folder)
    file = folder / "tokenizer.json"
    if tokenizer is None or not file.is_file():
        raise fail(ArgumentError, "export", f"{folder} has no tokenizer.json", "put it beside config.json")
    text = file.read_bytes()
    settings = tokenizer_settings(json.loads(text))
    chat = chat_parts(tokenizer)
    generator = _generator(network, context or MOST_CONTEXT)
    with evaluating(network), mo.no_grad():
        traced = [trace(part.function, part.args, part.kwargs, part.name, None) for part in _parts(generator)]
        name_states(traced)
        quick = build(traced, "model", named("wasm32-relaxed"), "beside")
        exact = build(traced, "model", named("wasm32-simd128"), "beside")
    weights = quick.files["model.safetensors"]
    if weights != exact.files["model.safetensors"]:
        raise RuntimeError("the two modules read different weights")
    defaults = network.defaults
    site = {"name": folder.name, "context": generator.length, "chunk": min(CHUNK, generator.length), "chat": chat,
            "tokenizer": settings, "stops": sorted(_stops(network)),
            "temperature": _first(defaults.temperature, usual_temperature(chat is not None)),
            "top_k": _first(defaults.top_k, USUAL_TOP_K) or 0, "top_p": _first(defaults.top_p, 1.0),
            "penalty": _first(defaults.repetition_penalty, 1.0)}
    manifest = {"name": "model", "functions": quick.functions}
    files = {name: page_file(name) for name in TEXT_FILES}
    files |= {"model.wasm": quick.files["model.wasm"], "model-exact.wasm": exact.files["model.wasm"],
              "model.safetensors": weights, "model.json": json.dumps(manifest, indent=1).encode(),
              "site.json": json.dumps(site, indent=1).encode(), "tokenizer.json": text}
    write_files(place, files)
    return {"files": {name: len(data) for name, data in files.items()}, "context": generator.length,
            "seconds": time.perf_counter() - started}


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def _stops(network: Any) -> set[int]:
    """Tokens that end a text."""
    from morpho.models.text.generation import settled

    return settled(network, [1]).stops

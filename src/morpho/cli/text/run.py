"""`morpho run`: text from a model, as it is made, for one prompt or for one line after another."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import morpho as mo
from morpho.backends.registry import HOST, canonical, default_device, memory_of
from morpho.base import settings
from morpho.base.errors import ArgumentError, fail
from morpho.base.target import current_isa
from morpho.cli.text.conversation import converse
from morpho.cli.text.spread import Spread
from morpho.cli.text.stop_text import StopText
from morpho.cli.text.writing import Sampling, Writer, answer
from morpho.models.text.prompt_cache import PromptCache
from morpho.weights import hub
from morpho.weights.pull import MODELS, model_path

STDIN = "-"  # as a prompt or a file: standard input
LONGEST_PATH_BYTES = 4096
MOST_PROMPT_BYTES = 64 << 20
LONGEST_NAME_SHOWN = 80
CLOSE = 0.8  # how alike a word and the name of a model are, of 1, where the one is meant for the other


def run(words: Sequence[str], sampling: Sampling, *, file: str | None = None, chat: bool | None = None,
        spread: Spread | None = None, device: str = "", activations: str = "exact",
        prompt_cache: Path | None = None, commit: Path | None = None, draft: str = "") -> None:
    """Print the prompt and what the model makes of it, then how fast it was; without a prompt, one line of the terminal
    after another. `device`: where it runs, if not where the settings say."""
    if device:
        if spread is not None:
            raise fail(ArgumentError, "run", "--device is for one process, and workers compute on their CPUs",
                       "leave out --device, or --nodes, --hosts and --plan")
        with mo.device(canonical(device, "run")):
            run(words, sampling, file=file, chat=chat, activations=activations, prompt_cache=prompt_cache,
                commit=commit, draft=draft)
        return
    settings.get(), current_isa()  # mistakes in these are not mistakes in the model's files
    StopText(sampling.stop)
    model, prompt = understood(words, file)
    interactive = prompt is None
    if interactive and not sys.stdin.isatty():
        said = f"{_shown(model)} is a model, and there is no prompt" if model else "there is no prompt"
        raise fail(ArgumentError, "run", said, f'write: morpho run {_shown(model) + " " if model else ""}"Once", '
                                               "--file FILE, or - for a prompt from standard input")
    if spread is not None and prompt_cache is not None:
        raise fail(ArgumentError, "run", "--prompt-cache is of one process, and workers keep keys and values of "
                                         "their own", "leave out --prompt-cache, or --nodes, --hosts and --plan")
    if commit is not None and (spread is not None or interactive or prompt_cache is not None):
        raise fail(ArgumentError, "run", "--commit is for one prompt in one process, computed anew",
                   "give a prompt, and leave out --nodes, --hosts, --plan and --prompt-cache")
    writer = _writer(model, sampling, chat, spread, activations)
    if commit is not None:
        writer = replace(writer, commit=commit)
    if draft:
        writer = replace(writer, draft=_draft(writer, draft, activations, spread, prompt_cache))
    if prompt_cache is not None:
        writer = replace(writer, cache=PromptCache(prompt_cache, writer.network))
        _say(f"[{prompt_cache}: {len(writer.cache.tokens)} tokens]")
    try:
        if interactive:
            converse(writer)
        else:
            answer(writer, prompt or "")
    finally:
        if spread is not None:
            writer.network.close()


# -- what is asked for -------------------------------------------------------------------------------------------------
def understood(words: Sequence[str], file: str | None) -> tuple[str | None, str | None]:
    """(model, prompt) of a command line; no model: the one that ships; no prompt: there is none yet. A prompt beside a
    model is never looked for on the disk, and of a word that stands alone only what can be a path is."""
    if len(words) > 2:
        raise fail(ArgumentError, "run", f"{len(words)} words are more than a model and a prompt",
                   "quote a prompt of several words")
    if file is not None:
        if len(words) == 2:
            raise fail(ArgumentError, "run", "there is a prompt and --file too", "give one of them")
        return (words[0] if words else None), read_prompt(file)
    if not words:
        return None, None
    if len(words) == 1 and looks_like_a_model(words[0]):
        return words[0], None
    if len(words) == 1 and (words[0].endswith(".gguf") or get_close_matches(words[0], MODELS, cutoff=CLOSE)):
        raise fail(ArgumentError, "run", f"there is no folder or file {_shown(words[0])}, and no model of that name",
                   f"the names are {', '.join(MODELS)}; a prompt like this goes through --file or standard input")
    return (words[0] if len(words) == 2 else None), read_prompt(STDIN) if words[-1] == STDIN else words[-1]


def read_prompt(file: str) -> str:
    """The prompt in a file, or in standard input, without the end of its last line."""
    name = "standard input" if file == STDIN else file
    try:
        if file == STDIN:
            raw = sys.stdin.buffer.read(MOST_PROMPT_BYTES + 1)
        else:
            with open(file, "rb") as opened:
                raw = opened.read(MOST_PROMPT_BYTES + 1)
    except (OSError, ValueError) as error:
        raise fail(ArgumentError, "run", f"{_shown(name)} cannot be read: {getattr(error, 'strerror', None) or error}",
                   "--file takes a text in UTF-8") from None
    if len(raw) > MOST_PROMPT_BYTES:
        raise fail(ArgumentError, "run", f"{_shown(name)} has more than {MOST_PROMPT_BYTES} bytes",
                   "no model takes a prompt as long as that")
    try:
        return raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise fail(ArgumentError, "run", f"{_shown(name)} is not a text in UTF-8: {error.reason} at byte {error.start}",
                   "convert it first: iconv -t UTF-8") from None


def find(name: str, command: str = "run") -> Path:
    """The folder or file of a model: a path, a name that `morpho models pull` has fetched, or hf:OWNER/NAME, whose
    commit is said."""
    if hub.is_reference(name):
        found = hub.find(name, report=_say)
        _say(f"{name}: commit {found.commit}")
        return found.path
    place = _existing(name)
    if place is not None:
        return place
    if name not in MODELS:
        hint = "a prompt of several words needs quotes" if command == "run" else "`morpho models list` shows them"
        raise fail(ArgumentError, command, f"there is no folder or file {_shown(name)}, and no model of that name",
                   f"the names are {', '.join(MODELS)}; {hint}")
    return model_path(name)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def looks_like_a_model(word: str) -> bool:
    """Whether a word that stands alone is a model without a prompt: a name, a folder with a model, a GGUF file."""
    if hub.is_reference(word):
        return True
    place = _existing(word)
    if place is None:
        return word in MODELS
    return place.suffix == ".gguf" or _existing(str(place / "config.json")) is not None


def _existing(text: str) -> Path | None:
    """The path that a text names, if it can be one and something is there."""
    if not text or len(text.encode("utf-8", "surrogatepass")) > LONGEST_PATH_BYTES or "\n" in text or "\0" in text:
        return None
    try:
        return Path(text) if Path(text).exists() else None
    except (OSError, ValueError):  # a name longer than the file system's, a folder that may not be looked into
        return None


def _shown(name: str | None) -> str:
    text = " ".join((name or "").split())
    return text if len(text) <= LONGEST_NAME_SHOWN else text[:LONGEST_NAME_SHOWN] + "..."


def _writer(model: str | None, sampling: Sampling, chat: bool | None, spread: Spread | None, activations: str
            ) -> Writer:
    place = mo.models.SHIPPED if model is None else find(model)
    if spread is not None:
        if activations != "exact":
            raise fail(ArgumentError, "run", "--activations is of one process, and a pipeline's stages compute exactly",
                       "leave out --activations, or --nodes, --hosts and --plan")
        network = spread.pipeline(place)
        return _checked_writer(place, network, network.network.tokenizer(), network.network.defaults, sampling, chat)
    network, tokenizer = mo.models.load_with_tokenizer(place, activations=activations)
    if not isinstance(network, mo.models.LanguageModel):
        raise fail(ArgumentError, "run", f"{place.name} is a {type(network).__name__}, which makes no text",
                   "use it from Python: mo.models.load(folder)")
    if memory_of(default_device()) != HOST:  # `reference` computes on the CPU's memory: nothing moves
        network.to(default_device())
    return _checked_writer(place, network, tokenizer, network.defaults, sampling, chat)


def _draft(writer: Writer, name: str, activations: str, spread: Spread | None, prompt_cache: Path | None) -> Any:
    """A smaller model that guesses for the writer's."""
    if spread is not None or prompt_cache is not None:
        raise fail(ArgumentError, "run", "--draft is for one process without a prompt cache",
                   "leave out --draft, or --nodes, --hosts, --plan and --prompt-cache")
    from morpho.serve.engine.drafts import check_vocabularies

    model, tokenizer = mo.models.load_with_tokenizer(find(name), activations=activations)
    check_vocabularies(writer.tokenizer, tokenizer, name)
    if memory_of(default_device()) != HOST:
        model.to(default_device())
    return model


def _checked_writer(place: Path, network: Any, tokenizer: Any, defaults: Any, sampling: Sampling, chat: bool | None
                    ) -> Writer:
    if tokenizer is None:
        raise fail(ArgumentError, "run", f"{place} has no tokenizer.json", "put it beside config.json")
    talks = bool(tokenizer.chat_template) if chat is None else chat
    if talks and not tokenizer.chat_template:
        raise fail(ArgumentError, "run", f"{place.name} has no chat template", "leave out --chat")
    return Writer(network, tokenizer, sampling.completed(defaults, talks), talks)

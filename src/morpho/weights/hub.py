"""Models from the Hugging Face hub: `hf:OWNER/NAME`, with `@REVISION` for another one than main, and `/FILE.gguf`
behind the name where there are several.

The hub's own cache folder is read first; only what is missing is fetched, by huggingface_hub (extra `hub`), which obeys
HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE. A branch is pinned to the commit it had when it was first used: the same model
every time, until `morpho models pull` asks again. Of a repository only safetensors or GGUF files, configurations and
tokenizers are taken: nothing that could run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from morpho.base import settings
from morpho.base.distribution import install
from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.weights.atomic import atomic_file
from morpho.weights.errors import MissingExtra, MissingFile, PullError

PREFIX = "hf:"
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_REFERENCE = re.compile(rf"hf:(?P<owner>{_PART})/(?P<name>{_PART})(/(?P<file>{_PART}\.gguf))?"
                        r"(@(?P<revision>[A-Za-z0-9._/-]{1,128}))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
BESIDE = ("config.json", "generation_config.json", "preprocessor_config.json", "tokenizer.json",
          "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt",
          "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json")
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_SENDERS = ("httpx", "httpcore", "requests", "urllib3", "huggingface_hub")  # whose errors are the network's
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Reference:
    """A model on the hub.

    >>> from morpho.weights.hub import Reference
    >>> Reference.of("hf:owner/name@v1.0")
    Reference(repository='owner/name', revision='v1.0', file=None)
    """

    repository: str
    revision: str = "main"
    file: str | None = None

    @classmethod
    def of(cls, text: str) -> Reference:
        found = _REFERENCE.fullmatch(text)
        if found is None or ".." in text:
            raise fail(ArgumentError, "models", f"{text[:200]!r} does not name a model on the hub",
                       "write hf:OWNER/NAME, hf:OWNER/NAME@REVISION or hf:OWNER/NAME/FILE.gguf")
        return cls(f"{found['owner']}/{found['name']}", found["revision"] or "main", found["file"])


@dataclass(frozen=True)
class Found:
    """Where a model of the hub lies, and which commit it is."""

    path: Path
    commit: str


def is_reference(text: str) -> bool:
    """Whether a text names a model on the hub.

    >>> from morpho.weights.hub import is_reference
    >>> is_reference("hf:owner/name"), is_reference("smollm2")
    (True, False)
    """
    return text.startswith(PREFIX)


def find(text: str, report: Callable[[str], None] = lambda _: None) -> Found:
    """The model, from the cache where it is there whole, else fetched."""
    reference = Reference.of(text)
    return _cached(reference) or _fetched(reference, report)


def pull(text: str, report: Callable[[str], None] = lambda _: None) -> Found:
    """The model as the hub has it now: a branch is looked at anew, unless the hub is off; what is there already is not
    fetched again."""
    reference = Reference.of(text)
    known = _cached(reference)
    if known is not None and (_COMMIT.fullmatch(reference.revision) or _library().constants.HF_HUB_OFFLINE):
        report(f"{reference.repository} at commit {known.commit} is there already")
        return known
    return _fetched(reference, report)


def _library() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
    except ImportError:
        raise fail(MissingExtra, "models", "models of the hub need the huggingface_hub library", install("hub")
                   ) from None
    return huggingface_hub


# -- what is here ------------------------------------------------------------------------------------------------------
def _cached(reference: Reference) -> Found | None:
    """The model in the hub's cache folder, if all of it is there."""
    folder = Path(_library().constants.HF_HUB_CACHE) / f"models--{reference.repository.replace('/', '--')}"
    for commit in _commits(reference, folder):
        snapshot = folder / "snapshots" / commit
        place = _whole(snapshot, reference.file)
        if place is not None:
            return Found(place, commit)
    return None


def _commits(reference: Reference, folder: Path) -> list[str]:
    """The commits that a revision may mean here: the one it was pinned to first, then the one the cache has for it."""
    if _COMMIT.fullmatch(reference.revision):
        return [reference.revision]
    pinned = _pins().get(f"{reference.repository}@{reference.revision}")
    try:
        noted = (folder / "refs" / reference.revision).read_text()[:64].strip()
    except OSError:
        noted = ""
    return [commit for commit in (pinned, noted) if commit and _COMMIT.fullmatch(commit)]


def _whole(snapshot: Path, file: str | None) -> Path | None:
    """Path to load from a snapshot: the folder, or its only GGUF file; None if something is missing."""
    if file is not None:
        return snapshot / file if (snapshot / file).is_file() else None
    if (snapshot / "config.json").is_file():
        if (snapshot / "model.safetensors").is_file():
            return snapshot
        try:
            shards = {*json.loads((snapshot / _INDEX).read_bytes()[:1 << 26])["weight_map"].values()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            shards = set()
        if shards and all(isinstance(shard, str) and (snapshot / shard).is_file() for shard in shards):
            return snapshot
    only = sorted(snapshot.glob("*.gguf"))
    return only[0] if len(only) == 1 else None


def _pins_file() -> Path:
    return settings.get().cache_path / "models" / "hub.json"


def _pins() -> dict[str, str]:
    try:
        found = json.loads(_pins_file().read_text())
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def _pin(reference: Reference, commit: str) -> None:
    pins = {**_pins(), f"{reference.repository}@{reference.revision}": commit}
    settings.get().cache_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    _pins_file().parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(_pins_file()) as file:
        file.write(json.dumps(pins, indent=1, sort_keys=True).encode())


# -- what is fetched ---------------------------------------------------------------------------------------------------
def wanted(names: list[str], file: str | None, repository: str) -> list[str]:
    """Which files of a repository are taken.

    >>> from morpho.weights.hub import wanted
    >>> wanted(["config.json", "model.safetensors", "pytorch_model.bin", "run.py", "tokenizer.json"], None, "o/n")
    ['config.json', 'tokenizer.json', 'model.safetensors']
    """
    beside = [name for name in BESIDE if name in names]
    if file is not None:
        if file not in names:
            raise fail(MissingFile, "models", f"{repository} has no {file}", _listed([*filter(_is_gguf, names)]))
        return [file]
    if "config.json" in names and "model.safetensors" in names:
        return [*beside, "model.safetensors"]
    shards = [name for name in names if _SHARD.fullmatch(name)]
    if "config.json" in names and _INDEX in names and shards:
        return [*beside, _INDEX, *shards]
    packed = [*filter(_is_gguf, names)]
    if len(packed) == 1:
        return packed
    if packed:
        raise fail(ArgumentError, "models", f"{repository} has {len(packed)} GGUF files",
                   f"say which: hf:{repository}/{packed[0]}; {_listed(packed)}")
    raise fail(PullError, "models", f"{repository} has neither model.safetensors with config.json nor a GGUF file",
               "weights that are pickles (.bin, .pt) are not read")


def _is_gguf(name: str) -> bool:
    return name.endswith(".gguf") and "/" not in name


def _listed(names: list[str]) -> str:
    return "there are " + ", ".join(names[:10]) + (" and others" if len(names) > 10 else "") if names else ""


def _fetched(reference: Reference, report: Callable[[str], None]) -> Found:
    library, repository = _library(), reference.repository
    if library.constants.HF_HUB_OFFLINE:
        raise fail(MissingFile, "models", f"{repository} at {reference.revision} is not in the hub's cache, and the "
                                          "hub is off (HF_HUB_OFFLINE)", f"look into {library.constants.HF_HUB_CACHE}")
    try:
        info = library.HfApi().model_info(repository, revision=reference.revision)
        commit = str(info.sha)
        names = [each.rfilename for each in info.siblings or ()]
        if not _COMMIT.fullmatch(commit):
            raise fail(PullError, "models", f"the hub names no commit for {repository} at {reference.revision}")
        files = wanted(names, reference.file, repository)
        report(f"{repository} at commit {commit}: {len(files)} files")
        places = [Path(library.hf_hub_download(repository, name, revision=commit)) for name in files]
    except library.errors.HfHubHTTPError as error:
        raise fail(PullError, "models", f"{repository} at {reference.revision}: {_told(error, library)}",
                   "is the name right? Gated models need a login: huggingface-cli login") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:  # no network, or no hub behind it
        if isinstance(error, MorphoError):
            raise
        raise fail(PullError, "models", f"the hub cannot be reached for {repository}: {_first_line(error)}",
                   "look at the network, or at HF_ENDPOINT") from None
    except Exception as error:  # whatever its HTTP library raises
        if isinstance(error, MorphoError) or type(error).__module__.split(".")[0] not in _SENDERS:
            raise
        raise fail(PullError, "models", f"the hub cannot be reached for {repository}: {_first_line(error)}",
                   "look at the network, or at HF_ENDPOINT") from None
    found = _whole(places[0].parent, reference.file)
    if found is None:
        raise fail(PullError, "models", f"{repository} at commit {commit} came incomplete", "pull it again")
    _pin(reference, commit)
    return Found(found, commit)


def _told(error: Any, library: Any) -> str:
    if isinstance(error, library.errors.RevisionNotFoundError):
        return "there is no such revision"
    if isinstance(error, library.errors.GatedRepoError):
        return "its owner lets only some people have it"
    if isinstance(error, library.errors.RepositoryNotFoundError):
        return "there is no such model"
    return _first_line(error)


def _first_line(error: Any) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:200]

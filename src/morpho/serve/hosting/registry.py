"""Models by name: which are loaded, which is given up when memory is short, and which has changed on the disk."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.base.machine import machine
from morpho.base.units import format_bytes
from morpho.models import LanguageModel, load_with_tokenizer
from morpho.models.encoders.heads import WithHeads
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import EngineProtocol
from morpho.serve.hosting.embedder import Embedder, Scorer, pooling_of, positions_of, says_logits, says_segments
from morpho.serve.hosting.served import Served
from morpho.weights.errors import MissingFile

LOG = logging.getLogger("morpho.serve")
WATCHED = ("config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json",
           "tokenizer_config.json", "generation_config.json", "chat_template.jinja")
Signature = tuple[tuple[str, int, int], ...]
LoadModel = Callable[[Path], tuple[Any, Any]]
MakeEngine = Callable[[Any, Any, "Spec"], EngineProtocol]


class UnknownModel(MorphoError, LookupError):
    """No model of that name is served."""


class NoRoom(MorphoError, RuntimeError):
    """The memory is held by models that are in use."""


@dataclass(frozen=True)
class Spec:
    """A model that may be asked for: its name, its folder or file, and LoRA adapters of it (name -> folder)."""

    name: str
    place: Path
    adapters: dict[str, Path] = field(default_factory=dict)

    def signature(self) -> Signature:
        """Which files there are, when they were written and how long they are."""
        files = [self.place / name for name in WATCHED] if self.place.is_dir() else [self.place]
        found = []
        for file in files:
            try:
                said = file.stat()
            except OSError:
                continue
            found.append((file.name, said.st_mtime_ns, said.st_size))
        return tuple(found)

    def file_bytes(self) -> int:
        files = self.place.glob("*.safetensors") if self.place.is_dir() else [self.place]
        return sum(file.stat().st_size for file in files)


@dataclass
class _Slot:
    """State of one spec."""

    spec: Spec
    served: Served | None = None
    loaded_from: Signature = ()
    seen: Signature = ()  # at the last look: files that still change are not read
    loading: threading.Lock = field(default_factory=threading.Lock)
    coming: int = 0  # bytes of what is being loaded
    failed: str | None = None


class Registry:
    """The models of a server. `lease` gives a loaded one for as long as a request lasts; `load` loads one, which takes
    a while, and gives up those that were not used for longest where `memory_bytes` is not enough for all.
    """

    def __init__(self, specs: Sequence[Spec], make_engine: MakeEngine, memory_bytes: int | None = None,
                 load: LoadModel = load_with_tokenizer, without_weights: bool = False) -> None:
        if not specs:
            raise fail(ArgumentError, "serve", "there is no model to serve")
        self._slots = {spec.name: _Slot(spec) for spec in specs}
        names = [spec.name for spec in specs] + [name for spec in specs for name in spec.adapters]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise fail(ArgumentError, "serve", f"two models are called {twice!r}", "name them: other=FOLDER")
        self._base = {name: spec.name for spec in specs for name in (spec.name, *spec.adapters)}
        self._make_engine, self.memory_bytes = make_engine, memory_bytes
        self._load, self._without_weights = load, without_weights
        self._lock = threading.Lock()
        self.default, self.evictions, self.reloads = specs[0].name, 0, 0
        self.closed = False
        self.on_load: list[Callable[[Served], None]] = []

    @property
    def names(self) -> list[str]:
        return [*self._base]

    def specs(self) -> list[Spec]:
        return [slot.spec for slot in self._slots.values()]

    def loaded(self) -> list[Served]:
        return [slot.served for slot in self._slots.values() if slot.served is not None]

    def failure(self, name: str) -> str | None:
        """Why the last attempt to load a model failed."""
        return self._slots[name].failed

    @contextmanager
    def lease(self, name: str | None) -> Iterator[Served | None]:
        """The model for the time of the block; None if it is not loaded (`load` it, and ask again)."""
        slot = self._slot(name)
        with self._lock:
            served = slot.served
            if served is not None:
                served.users += 1
                served.last_used = time.monotonic()
        try:
            yield served
        finally:
            if served is not None:
                with self._lock:
                    served.users -= 1
                    closing = served.retired and served.users == 0
                if closing:
                    threading.Thread(target=served.close, name="morpho-serve-close", daemon=True).start()

    def adapter_of(self, name: str | None) -> str | None:
        """The adapter that a name stands for; None for a model itself."""
        return name if name is not None and name not in self._slots and name in self._base else None

    def load(self, name: str | None) -> None:
        """Load a model unless it is there; of several callers one loads it and the others wait."""
        slot = self._slot(name)
        with slot.loading:
            if slot.served is None and not self.closed:
                self._make_room(slot)
                try:
                    self._replace(slot)
                finally:
                    slot.coming = 0

    def _slot(self, name: str | None) -> _Slot:
        base = self._base.get(self.default if name is None else name)
        if base is None:
            raise fail(UnknownModel, "serve", f"there is no model '{str(name)[:80]}'", "there are "
                       + ", ".join(self._base), line="")
        return self._slots[base]

    def _replace(self, slot: _Slot) -> None:
        signature = slot.spec.signature()
        try:
            served = self._loaded(slot.spec)
        except Exception as error:
            slot.failed = str(error)
            raise
        with self._lock:
            over, old = self.closed, slot.served
            if not over:
                slot.served, slot.loaded_from, slot.seen, slot.failed = served, signature, signature, None
        if over:  # the server has ended meanwhile
            served.close(drain=False)
            return
        if old is not None:
            self._retire(old)
        for call in self.on_load:
            call(served)

    def _loaded(self, spec: Spec) -> Served:
        network, tokenizer = self._load(spec.place)
        if tokenizer is None:
            raise fail(ArgumentError, "serve", f"{spec.place} has no tokenizer.json", "put it beside config.json")
        engine, embedder = None, None
        if isinstance(network, LanguageModel):
            engine = self._make_engine(network, tokenizer, spec)
        if self._embeds(network):
            embedder = Embedder(network, positions_of(network), pooling_of(spec.place))
        scorer = None
        if isinstance(network, WithHeads) and network.head_kind == "sequence" and network.config.get("labels") == 1:
            scorer = Scorer(network, positions_of(network), says_logits(spec.place), says_segments(spec.place))
        if engine is None and embedder is None:
            raise fail(ArgumentError, "serve", f"{spec.place.name} is a {type(network).__name__}, which makes neither "
                                               "text nor vectors of texts", "use mo.models.load from Python")
        return Served(spec.name, spec.place, network, tokenizer, engine, embedder, spec.file_bytes(),
                      scorer=scorer)

    def _embeds(self, network: Any) -> bool:
        """Whether vectors of texts are made: by encoders, and by the encoder of a model that makes text too, where its
        weights are here."""
        if isinstance(network, LanguageModel):
            return hasattr(network, "encode") and not self._without_weights
        return isinstance(network, WithHeads)

    def _retire(self, served: Served) -> None:
        with self._lock:
            served.retired = True
            idle = served.users == 0
        if idle:
            served.close()

    def _make_room(self, wanted: _Slot) -> None:
        """Give up models that nobody uses, the one that was used longest ago first."""
        if self.memory_bytes is None:
            return
        try:
            needed = wanted.spec.file_bytes()
        except OSError as error:
            raise fail(MissingFile, "serve", f"{wanted.spec.place} cannot be read: {error}") from None
        while True:
            with self._lock:
                held = [slot for slot in self._slots.values() if slot.served is not None]
                coming = sum(slot.coming for slot in self._slots.values())  # others are loaded at this moment
                used = sum(slot.served.nbytes for slot in held if slot.served) + coming
                if used + needed <= self.memory_bytes or not (held or coming):
                    wanted.coming = needed
                    return
                idle = [slot for slot in held if slot.served and slot.served.users == 0]
                if not idle:
                    raise fail(NoRoom, "serve", f"{wanted.spec.name} needs {format_bytes(needed)}, and of "
                               f"{format_bytes(self.memory_bytes)} models in use hold {format_bytes(used)}",
                               "try again later, or start the server with more --memory", line="")
                oldest = min(idle, key=lambda slot: slot.served.last_used if slot.served else 0.0)
                given_up, oldest.served = oldest.served, None
                self.evictions += 1
            assert given_up is not None
            LOG.info("evicted", extra={"model": given_up.name, "bytes": given_up.nbytes})
            self._retire(given_up)

    def look_for_changes(self) -> list[str]:
        """Load anew what has changed on the disk since it was loaded and since the last look did not; the names. A
        folder that cannot be loaded is said once, and what was loaded stays."""
        changed = []
        for slot in self._slots.values():
            if slot.served is None or self.closed:
                continue
            now = slot.spec.signature()
            stable, slot.seen = now == slot.seen, now
            if not stable or now == slot.loaded_from or not now:
                continue
            with slot.loading:
                if slot.served is None:  # given up meanwhile
                    continue
                try:
                    self._replace(slot)
                except (MorphoError, OSError) as error:
                    slot.loaded_from = now
                    LOG.error("reload_failed", extra={"model": slot.spec.name, "error": str(error)})
                else:
                    changed.append(slot.spec.name)
                    self.reloads += 1
                    LOG.info("reloaded", extra={"model": slot.spec.name})
        return changed

    def take_weights(self, name: str | None) -> str | None:
        """Read a loaded model's files again, and have its engine use them from its next step on; gives the digest of
        the weights in use, or None if the model is not loaded. The engine, its functions and adapters stay."""
        slot = self._slot(name)
        with slot.loading:
            served = slot.served
            if served is None:
                return None
            if not isinstance(served.engine, Engine):
                raise fail(ArgumentError, "serve", f"{slot.spec.name} has no engine in this process", "restart it")
            signature = slot.spec.signature()
            network, _ = self._load(slot.spec.place)
            served.engine.take_weights(network)
            slot.loaded_from = slot.seen = signature
            self.reloads += 1
            return str(served.engine.place()["weights"])

    def close(self, drain: bool = True, timeout_s: float | None = None) -> None:
        """End all engines."""
        with self._lock:
            self.closed = True
        for slot in self._slots.values():
            served, slot.served = slot.served, None
            if served is not None:
                served.close(drain, timeout_s)


def usual_memory() -> int:
    """Four fifths of what the machine has."""
    return int(machine().memory_bytes * 0.8)

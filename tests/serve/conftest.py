"""One server for all tests of a file that only ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="the extra `serve`")
pytest.importorskip("starlette", reason="the extra `serve`")
pytest.importorskip("httpx", reason="the extra `test`")

from serving import Running, bert_folder, chat_folder, serving

from morpho.serve.hosting.engines import EngineOptions
from morpho.serve.hosting.registry import Spec


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_folder(tmp_path_factory.mktemp("chat"))


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_folder(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def server(chat_model: Path, encoder: Path) -> Iterator[Running]:
    """The real engine with a tiny model, and an encoder beside it."""
    with serving(Spec("tiny", chat_model), Spec("encoder", encoder),
                 make_engine=EngineOptions(kv_bytes=1 << 20, max_batch=8, warm=False)) as running:
        yield running


@pytest.fixture(scope="module")
def held(chat_model: Path) -> Iterator[Running]:
    """A server whose engine can be held and made to fail."""
    with serving(Spec("tiny", chat_model)) as running:
        yield running

"""Models of the hub, from a small local server that speaks its protocol."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.weights import hub
from morpho.weights.errors import MissingFile, PullError

library = pytest.importorskip("huggingface_hub", reason="the hub's own library fetches")
pytest.importorskip("huggingface_hub.constants")
pytest.importorskip("huggingface_hub.hf_api")

ONE, TWO = "1" * 40, "2" * 40


class Hub(ThreadingHTTPServer):
    """Repositories as {name: {commit: {file: bytes}}}, branches as {name: {branch: commit}}."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.files: dict[str, dict[str, dict[str, bytes]]] = {}
        self.branches: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit_of(self, name: str, revision: str) -> str | None:
        found = self.branches.get(name, {}).get(revision, revision)
        return found if found in self.files.get(name, {}) else None


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            self._about("/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main")
        elif len(parts) >= 5 and parts[2] == "resolve":
            self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def _about(self, name: str, revision: str) -> None:
        commit = self.server.commit_of(name, revision)
        if commit is None:
            known = name in self.server.files
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound" if known else "RepoNotFound"})
            return
        if "/tree/" in self.path:
            tree = [{"type": "file", "path": each, "size": len(data), "oid": "0" * 40}
                    for each, data in self.server.files[name][commit].items()]
            self._send(200, json.dumps(tree).encode(), {})
            return
        files = [{"rfilename": each} for each in self.server.files[name][commit]]
        self._send(200, json.dumps({"_id": "0", "id": name, "modelId": name, "sha": commit, "private": False,
                                    "siblings": files, "tags": [], "downloads": 0, "likes": 0}).encode(),
                   {"Content-Type": "application/json"})

    def _file(self, name: str, revision: str, file: str) -> None:
        commit = self.server.commit_of(name, revision)
        data = None if commit is None else self.server.files[name][commit].get(file)
        if data is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        self._send(200, data, {"X-Repo-Commit": str(commit), "ETag": f'"{hashlib.sha1(data).hexdigest()}"',
                               "Accept-Ranges": "bytes"})

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    found = Hub()
    threading.Thread(target=found.serve_forever, daemon=True).start()
    for name, value in (("ENDPOINT", found.url), ("HF_HUB_CACHE", str(tmp_path / "hub")), ("HF_HUB_OFFLINE", False),
                        ("HUGGINGFACE_CO_URL_TEMPLATE", found.url + "/{repo_id}/resolve/{revision}/{filename}"),
                        ("HF_HUB_DISABLE_XET", True), ("HF_HUB_DISABLE_TELEMETRY", True)):
        monkeypatch.setattr(library.constants, name, value)
    monkeypatch.setattr(library.hf_api.api, "endpoint", found.url)
    folder = mo.models.SHIPPED
    files = {each.name: each.read_bytes() for each in folder.iterdir()}
    files |= {"pytorch_model.bin": b"\x80pickle", "setup.py": b"raise SystemExit", "onnx/model.safetensors": b"x"}
    found.files["small/model"] = {ONE: files, TWO: {**files, "README.md": b"later"}}
    found.branches["small/model"] = {"main": ONE}
    found.files["small/packed"] = {ONE: {"a.gguf": b"GGUF", "b.gguf": b"GGUF"}}
    found.branches["small/packed"] = {"main": ONE}
    with mo.settings(cache_dir=str(tmp_path / "cache")):
        yield found
    found.shutdown()
    found.server_close()


def test_a_model_is_fetched_once_and_pinned(server: Hub) -> None:
    said: list[str] = []
    found = hub.find("hf:small/model", said.append)
    assert found.commit == ONE and ONE in said[0]
    assert {each.name for each in found.path.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json",
                                                            "tokenizer_config.json"}
    model, tokenizer = mo.models.load_with_tokenizer(found.path)
    assert [*mo.models.generate(model, tokenizer.encode("In the"), max_new_tokens=3)]
    server.branches["small/model"]["main"] = TWO  # the branch moves on
    asked = len(server.asked)
    assert hub.find("hf:small/model") == found and len(server.asked) == asked  # nothing is asked
    assert hub.pull("hf:small/model").commit == TWO  # until it is pulled again
    assert hub.find("hf:small/model").commit == TWO
    assert hub.find(f"hf:small/model@{ONE}") == found
    assert not any(".bin" in line or ".py" in line or "onnx" in line for line in server.asked)


def test_offline(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    found = hub.find("hf:small/model")
    monkeypatch.setattr(library.constants, "HF_HUB_OFFLINE", True)
    asked = len(server.asked)
    assert hub.find("hf:small/model") == hub.pull("hf:small/model") == found
    with pytest.raises(MissingFile, match="not in the hub's cache, and the hub is off"):
        hub.find("hf:small/other")
    with pytest.raises(MissingFile, match="the hub is off"):
        hub.pull(f"hf:small/model@{TWO}")
    assert len(server.asked) == asked


def test_what_another_program_fetched_is_read(server: Hub) -> None:
    path = library.snapshot_download("small/model", endpoint=server.url)
    asked = len(server.asked)
    assert str(hub.find("hf:small/model").path) == path and len(server.asked) == asked


def test_several_gguf_files(server: Hub) -> None:
    with pytest.raises(ArgumentError, match=r"has 2 GGUF files.*hf:small/packed/a.gguf; there are a.gguf, b.gguf"):
        hub.find("hf:small/packed")
    assert hub.find("hf:small/packed/b.gguf").path.name == "b.gguf"
    with pytest.raises(MissingFile, match=r"has no c\.gguf"):
        hub.find("hf:small/packed/c.gguf")


def test_what_is_not_there(server: Hub) -> None:
    with pytest.raises(PullError, match="there is no such model"):
        hub.find("hf:small/nothing")
    with pytest.raises(PullError, match="there is no such revision"):
        hub.find("hf:small/model@v9")
    server.files["small/pickles"] = {ONE: {"config.json": b"{}", "pytorch_model.bin": b""}}
    server.branches["small/pickles"] = {"main": ONE}
    with pytest.raises(PullError, match=r"neither model\.safetensors with config\.json nor a GGUF file"):
        hub.find("hf:small/pickles")


@pytest.mark.parametrize("text", ["hf:", "hf:model", "hf:a/b/c", "hf:../b", "hf:a/..", "hf:a/b@", "hf:a/b@../../x",
                                  "hf:a b/c", "hf:a/b/../c.gguf"])
def test_names_that_make_no_sense(text: str) -> None:
    with pytest.raises(ArgumentError, match="does not name a model on the hub"):
        hub.Reference.of(text)


def test_the_command_line(server: Hub, tmp_path: Path) -> None:
    """By the environment variables that the hub's library knows, in a process of its own."""
    around = {**os.environ, "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}

    def morpho(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "morpho", *words], env={**around, **more}, capture_output=True,
                              text=True, check=False)

    pulled = morpho("models", "pull", "hf:small/model")
    assert pulled.returncode == 0 and Path(pulled.stdout.strip()).name == ONE and f"commit {ONE}" in pulled.stderr
    made = morpho("run", "hf:small/model", "In the", "--tokens", "1", "--temperature", "0", HF_HUB_OFFLINE="1")
    assert made.returncode == 0 and made.stdout.startswith("In the") and f"commit {ONE}" in made.stderr
    wrong = morpho("run", "hf:small/other", "x", HF_HUB_OFFLINE="1")
    assert wrong.returncode and "HF_HUB_OFFLINE" in wrong.stderr and "Traceback" not in wrong.stderr

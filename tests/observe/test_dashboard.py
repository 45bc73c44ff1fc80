"""The dashboard: who may look, what it says, and the page in a browser."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from dashboards import written_cluster, written_ranks, written_run
from typer.testing import CliRunner

import morpho as mo
from morpho.base import settings
from morpho.cli import launch as launching
from morpho.cli.main import app
from morpho.cluster.frontend import history, status
from morpho.observe.monitor.ranks import read_ranks
from morpho.serve.dashboard.server import Dashboard
from morpho.serve.dashboard.sources import Sources, run_id

sys.path.insert(0, str(Path(__file__).parent.parent / "serve"))
from browser import Browser, chromium

PROGRAM = chromium()
needs_browser = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on this machine")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard of two runs, a pipeline and a ledger, beside this process."""
    root = tmp_path_factory.mktemp("dashboard")
    written_run(root / "runs" / "baseline", lr=1e-3, begun=time.time() - 172_800)
    written_run(root / "runs" / "faster", lr=3e-3, begun=time.time() - 40, steps=120, batch=16)
    (root / "runs" / "<img src=x onerror=window.bitten=1>").mkdir()
    (root / "runs" / "<img src=x onerror=window.bitten=1>" / "losses.jsonl").write_text('{"step":1,"loss":3.0}\n')
    (root / "secret").write_text("not for the page")
    with pytest.MonkeyPatch.context() as here:  # apart from pipelines that other tests run meanwhile
        here.setattr(history, "ledger_path", lambda: root / "ledger.jsonl")
        here.setattr(status, "folder", lambda: root / "running")
        written_cluster()
        written_ranks(root / "ranks")
        with Dashboard([root / "runs"], ranks=root / "ranks") as dashboard:
            yield dashboard
        status.clear()


def client(dashboard: Dashboard, token: str | None = None, **headers: str) -> httpx.Client:
    bearer = {"Authorization": f"Bearer {token or dashboard.token}"}
    return httpx.Client(base_url=dashboard.options.url, headers={**bearer, **headers}, trust_env=False)


# -- who may look ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", ["/api/live", "/api/runs", "/api/curves?run=x", "/api/cluster", "/api/ledger",
                                  "/api/ranks"])
def test_figures_need_the_token_on_loopback_too(shown: Dashboard, path: str) -> None:
    with client(shown, token="wrong") as other, client(shown) as right:
        assert other.get(path).status_code == 401
        assert httpx.get(shown.options.url + path, trust_env=False).status_code == 401
        assert right.get(path).status_code == 200
    assert shown.token not in shown.options.url and shown.address.startswith(shown.options.url + "/#token=")


def test_a_browser_is_bound_and_other_pages_and_names_are_refused(shown: Dashboard) -> None:
    with client(shown) as one:
        page = one.get("/")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "trusted-types" in policy
        assert page.headers["x-frame-options"] == "DENY" and "cache-control" in page.headers
        assert one.get("/", headers={"Host": "evil.example"}).status_code == 403
        assert one.get("/api/runs", headers={"Origin": "https://evil.example"}).status_code == 403
        assert one.post("/api/runs").status_code == 405
        for path in ("/nothing", "/api/../secret", "/..%2fsecret", "/page/page.js"):
            assert one.get(path).status_code == 404
    with pytest.raises(mo.errors.ArgumentError, match="token is not 16"):
        Dashboard(token="short")


def raw(dashboard: Dashboard, sent: bytes, end: bool = True) -> bytes:
    """What the server answers to bytes that no client library would send."""
    with socket.create_connection((dashboard.options.host, dashboard.options.port), 10) as line:
        answer = b""
        with contextlib.suppress(OSError):  # the server need not read all of it, and may have gone
            line.sendall(sent)
            if end:
                line.shutdown(socket.SHUT_WR)
            while piece := line.recv(65536):
                answer += piece
    return answer


def test_requests_that_no_browser_sends(shown: Dashboard) -> None:
    host = f"Host: 127.0.0.1:{shown.options.port}\r\n".encode()
    bearer = f"Authorization: Bearer {shown.token}\r\n".encode()
    for path in (b"/../../../etc/passwd", b"//etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"/page.js/../../server.py",
                 b"/api/curves?run=../../secret&run=%00&run=" + b"a" * 3000):
        answer = raw(shown, b"GET " + path + b" HTTP/1.1\r\n" + host + bearer + b"Connection: close\r\n\r\n", end=False)
        assert b"not for the page" not in answer and b"root:" not in answer, path
        assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400")) or (b"/api/curves" in path and b"{}" in answer)
    huge = raw(shown, b"GET / HTTP/1.1\r\n" + host + b"X: " + b"a" * (1 << 20) + b"\r\n\r\n")
    assert not huge.startswith(b"HTTP/1.1 200")
    for said in (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" * 40,
                 b"POST /api/runs HTTP/1.1\r\n" + host + bearer + b"Content-Length: 99999999999\r\n\r\n",
                 b"GET /api/runs HTTP/1.1\r\n" + host + b"Authorization: Bearer " + b"\xff" * 40 + b"\r\n\r\n"):
        assert not raw(shown, said).startswith(b"HTTP/1.1 200"), said[:60]
    with client(shown) as one:
        assert one.get("/api/runs").status_code == 200


def test_slow_clients_keep_nobody_waiting(shown: Dashboard) -> None:
    """Many who never finish what they say, and the next one is answered at once."""
    lines = [socket.create_connection((shown.options.host, shown.options.port), 10) for _ in range(100)]
    try:
        for line in lines:
            line.sendall(b"GET /api/runs HTTP/1.1\r\nHos")
        with client(shown) as one:
            assert one.get("/api/runs").status_code == 200
    finally:
        for line in lines:
            line.close()


def test_no_resource_is_fetched_from_elsewhere() -> None:
    folder = Path(__file__).parents[2] / "src" / "morpho" / "serve" / "dashboard" / "page"
    for file in folder.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text and "innerHTML" not in text and "eval(" not in text


# -- what it says ------------------------------------------------------------------------------------------------------
def test_runs_are_compared_and_ids_choose_among_them(shown: Dashboard) -> None:
    with client(shown) as one:
        runs = one.get("/api/runs").json()["runs"]
        assert [run["name"] for run in runs[:2]] == ["faster", "baseline"]
        assert runs[0]["steps"] == 200 and runs[0]["step"] == 120 and runs[1]["best_held_out"] > 1
        asked = [("run", run["id"]) for run in runs[:2]] + [("run", "../../secret")]
        curves = one.get("/api/curves", params=asked).json()["curves"]
    assert set(curves) == {run["id"] for run in runs[:2]}
    assert len(curves[runs[1]["id"]]["loss"]) == 200 and curves[runs[0]["id"]]["parts"]["step"] == pytest.approx(0.18)


def test_a_pipeline_and_its_predictions(shown: Dashboard) -> None:
    with client(shown) as one:
        (pipeline,) = one.get("/api/cluster").json()["pipelines"]
        ledger = one.get("/api/ledger").json()
    assert [stage["node"] for stage in pipeline["stages"]] == ["alpha", "beta", "gamma", "delta"]
    assert [(link["from"], link["to"], link["bytes_per_token"]) for link in pipeline["links"]] \
        == [("alpha", "beta", 2304), ("beta", "gamma", 2304)]
    assert [round(row["errors"]["token_s"], 2) for row in ledger["rows"]] == [0.4, 0.05]
    assert ledger["corrections"]["alpha"] == pytest.approx(1.225)


def test_ranks_tell_their_own_figures(shown: Dashboard) -> None:
    with client(shown) as one:
        rows = one.get("/api/ranks").json()["ranks"]
    assert [row["rank"] for row in rows] == [0, 1, 2]  # and nothing of the files that are no rank's
    assert rows[1]["step_p50_s"] == pytest.approx(0.3) and rows[0]["rss_bytes"] > 1 << 20 and rows[2]["late_s"] > 60
    assert "loss" not in rows[2] and "cpu_cores" not in rows[2]


def test_launched_ranks_report_and_go_on_as_ranks(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nfrom morpho.observe.runs.log import count_step\n"
                      "count_step(2.5, 100, 0.25)\nprint(sys.argv[1:])\n")
    done = subprocess.run([sys.executable, "-m", "morpho.cli.rank", str(tmp_path), "--least", "1", str(script),
                           "a", "b"], env=settings.environment(OMPI_COMM_WORLD_RANK="3"), capture_output=True,
                          text=True)
    assert done.returncode == 0 and done.stdout == "['a', 'b']\n", done.stderr
    (row,) = read_ranks(tmp_path)
    assert (row["rank"], row["loss"], row["tokens"]) == (3, 2.5, 100) and row["rss_bytes"] > 1 << 20
    assert 0.24 < row["step_p50_s"] < 0.26


def test_the_launcher_shows_its_ranks_and_they_are_not_asked_to(monkeypatch: pytest.MonkeyPatch,
                                                                tmp_path: Path) -> None:
    """`train --nodes 2 --dashboard` and `launch --dashboard`: the page is the launcher's, the ranks tell its folder."""
    jobs: list[Any] = []
    monkeypatch.setattr(launching, "run_job", lambda job, say: jobs.append(job) or 0)
    script = tmp_path / "script.py"
    script.write_text("")
    for words in (["train", "--nodes", "2", "--dashboard", "--out", str(tmp_path / "run")],
                  ["launch", "-n", "2", "--dashboard", str(script)]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0 and "dashboard at http://127.0.0.1" in done.output, done.output
        words = jobs[-1].words()
        assert "--dashboard" not in words and words[2] == "morpho.cli.rank" and "morpho-ranks-" in words[3]
    launching.launch([str(script)], 2, None, 0, None, 1, 0.0)
    assert jobs[-1].words()[2] == "morpho.cluster.launch.worker"


def test_a_server_shows_itself_on_another_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve --dashboard`: while models are served, the page has the process's figures."""
    from morpho.cli.server import serve as serving

    printed: list[str] = []
    found: list[Any] = []

    def served(wanted: Any) -> None:
        url, _, token = printed[0].split()[-1].partition("/#token=")
        found.append(httpx.get(url + "/api/live", headers={"Authorization": f"Bearer {token}"}, trust_env=False).json())

    monkeypatch.setattr("morpho.cli.server.dashboard.print", lambda text, **more: printed.append(text), raising=False)
    monkeypatch.setattr(serving, "serve", served)
    assert CliRunner().invoke(app, ["serve", "--dashboard"]).exit_code == 0
    assert found[0]["process"] and "morpho_pool_live_bytes" in found[0]["metrics"]


def test_an_unchanged_run_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written_run(tmp_path / "run")
    sources, reads = Sources([tmp_path]), []
    from morpho.observe.runs.reading import RunReader

    plain = RunReader.read
    monkeypatch.setattr(RunReader, "read", lambda reader: reads.append(reader.folder) or plain(reader))
    for _ in range(3):
        sources.runs()
        sources.curves([run_id(folder.resolve())])
    assert len(reads) == 1
    with open(folder / "metrics.jsonl", "ab") as file:
        file.write(b'{"step":201,"loss":1.0}\n')
    assert sources.runs()["runs"][0]["step"] == 201 and len(reads) == 2
    assert Sources([tmp_path / "run"]).runs()["runs"][0]["name"] == "run"


# -- the page ----------------------------------------------------------------------------------------------------------
def opened(dashboard: Dashboard, width: int, height: int, dark: bool) -> Browser:
    assert PROGRAM is not None
    browser = Browser(PROGRAM, width, height, dark)
    try:
        browser.open(dashboard.address)
        browser.until("document.querySelectorAll('#runs tbody tr').length === 3")
    except BaseException:
        browser.close()
        raise
    return browser


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_shows_it_all(shown: Dashboard, width: int, dark: bool, tmp_path: Path) -> None:
    browser = opened(shown, width, 900, dark)
    try:
        assert browser.value("document.querySelector('#runs input').checked")
        browser.value("document.querySelectorAll('#runs input')[1].click()")
        browser.until("document.querySelectorAll('#loss polyline').length === 2")
        text = browser.value("document.body.innerText")
        for word in ("held-out loss", "tokens/s", "layers [9, 20)", "in reserve", "2.25 KiB/token", "+40 %", "lr 0.003",
                     "120 / 200", "slowest step 1.50 x", "morpho_pool_live_bytes", "threads", "memory"):
            assert word in text, word
        assert browser.value("document.querySelectorAll('#parts .row').length") == 4
        assert browser.value("document.querySelectorAll('#caches .row').length") >= 1
        assert browser.value("document.documentElement.scrollWidth") <= width
        ground = browser.value("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(18, 21, 27)" if dark else "rgb(251, 251, 250)")
        assert browser.value("window.bitten") is None and browser.value("document.querySelectorAll('img').length") == 0
        assert "token" not in browser.value("location.href")  # nor in the history of the browser
        assert all(url.startswith(shown.options.url) for url in browser.requested()) and not browser.complaints()
        browser.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 10_000
    finally:
        browser.close()


@needs_browser
def test_the_page_follows_a_run_and_asks_for_a_token(shown: Dashboard, tmp_path: Path) -> None:
    folder = written_run(tmp_path / "runs" / "growing", steps=5, begun=time.time() - 2)
    with Dashboard([tmp_path / "runs"]) as dashboard:
        assert PROGRAM is not None
        browser = Browser(PROGRAM, 800, 700)
        try:
            browser.open(dashboard.options.url)
            browser.until("!document.getElementById('token-line').hidden")
            assert browser.value("document.querySelectorAll('#runs tr').length") == 0
            browser.value(f"document.getElementById('token').value = {dashboard.token!r};"
                          "document.getElementById('token-line').requestSubmit(); 0")
            browser.until("document.getElementById('runs').innerText.includes('5 / 200')")
            line = {"time": time.time(), "step": 6, "loss": 1.0, "lr": 0.1, "tokens": 10, "seconds": 0.1}
            with open(folder / "metrics.jsonl", "ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
            browser.until("document.getElementById('tiles').innerText.includes('6 / 200')")
            assert "live" in browser.value("document.getElementById('runs').innerText")
        finally:
            browser.close()


# -- the command -------------------------------------------------------------------------------------------------------
def test_the_command_prints_an_address_and_ends_at_once(tmp_path: Path) -> None:
    written_run(tmp_path / "run")
    with subprocess.Popen([sys.executable, "-m", "morpho", "dashboard", str(tmp_path), "--port", "0"],
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[2]
        url, _, token = address.partition("/#token=")
        found: Any = httpx.get(url + "/api/runs", headers={"Authorization": f"Bearer {token}"}, trust_env=False).json()
        assert [run["name"] for run in found["runs"]] == ["run"]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    said = CliRunner().invoke(app, ["dashboard", str(tmp_path / "nothing")])
    assert "there is no folder" in str(said.exception)

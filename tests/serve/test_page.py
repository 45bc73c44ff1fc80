"""The page in a browser: it talks, stops, tries again, shows what runs, and believes nothing that a model says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, chromium
from serving import Running, chat_folder, serving

from morpho.serve.engine.request import Event, Usage
from morpho.serve.hosting.registry import Spec
from morpho.serve.http.app import PAGE

PROGRAM = chromium()
needs_browser = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on this machine")

NASTY = """# Title
**strong** <img src=x onerror="window.bitten=1"> <script>window.bitten=1</script>

[link](javascript:window.bitten=1) [good](https://example.org/a) ![picture](http://127.0.0.1:1/x.png)

| a | b |
|---|---|
| 1 | <b onclick="window.bitten=1">2</b> |

- one
  - inner `code`
- two

```html
<script>window.bitten=1</script>
```
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, Running]]:
    assert PROGRAM is not None
    with serving(Spec("tiny", chat_folder(tmp_path_factory.mktemp("chat")))) as running:
        browser = Browser(PROGRAM, 390, 760)
        try:
            browser.open(running.url + "/")
            browser.until("document.querySelectorAll('#model option').length")
            yield browser, running
        finally:
            browser.close()


def say(browser: Browser, text: str) -> None:
    browser.value(f"document.getElementById('text').value = {text!r};"
                  "document.getElementById('ask').requestSubmit(); 0")


@needs_browser
def test_a_conversation(page: tuple[Browser, Running]) -> None:
    browser, running = page
    browser.value("document.getElementById('max_tokens').value = '12';"
                  "document.getElementById('temperature').value = '0';"
                  "document.getElementById('system').value = 'be brief'; 0")
    say(browser, "to be")
    browser.until("document.querySelector('.again')")
    assert browser.value("document.querySelectorAll('.turn').length") == 2
    assert "tokens" in browser.value("document.querySelector('.assistant .foot').textContent")
    made = running.engine().counts["finished"]
    browser.value("document.querySelector('.again').click()")
    browser.until("document.querySelector('.again')")
    assert running.engine().counts["finished"] == made + 1
    assert browser.value("document.querySelectorAll('.turn').length") == 2  # the answer is replaced
    browser.until("document.getElementById('live').textContent.includes('KV pages')")
    assert browser.value("document.getElementById('ready').textContent") == "ready"


@needs_browser
def test_the_stages_of_a_pipeline_are_shown(page: tuple[Browser, Running]) -> None:
    browser, running = page
    assert browser.value("document.getElementById('stage-view').hidden") is True
    common = {"process": 1, "streams": 2, "doing": "<b>waiting</b>"}
    running.engine().shown_stages = [{"node": "worker-1", "alive": True, "layers": [0, 9], **common},
                                     {"node": "worker-2", "alive": False, "layers": [], **common}]
    browser.until("document.getElementById('stages').textContent.includes('worker-1layers 0 to 8, 2 texts')")
    assert browser.value("document.querySelector('#stages .gone').textContent") == "gone"
    running.engine().shown_stages = []


@needs_browser
def test_stop_ends_the_request(page: tuple[Browser, Running]) -> None:
    browser, running = page
    engine = running.engine()
    before = engine.counts["cancelled"]
    engine.gate = type(engine.gate)(2)
    browser.value("document.getElementById('max_tokens').value = '500'; 0")
    say(browser, "go on")
    browser.until("!document.getElementById('stop').hidden")
    while engine.current is None:
        pass
    stream = engine.current
    browser.value("document.getElementById('stop').click()")
    browser.until("!document.getElementById('send').hidden")
    assert stream.cancelled.wait(30)
    engine.gate.release(1 << 20)
    browser.until("document.querySelector('.assistant:last-of-type .foot').textContent.includes('stopped')")
    while engine.counts["cancelled"] == before:
        pass


@needs_browser
def test_nothing_a_model_says_is_run(page: tuple[Browser, Running], monkeypatch: pytest.MonkeyPatch) -> None:
    browser, running = page
    engine = running.engine()

    def nasty(stream, index: int) -> None:  # type: ignore[no-untyped-def]
        for place in range(0, len(NASTY), 7):
            stream.push(Event(index, NASTY[place:place + 7], 1))
        stream.push(Event(index, "", finish="stop", usage=Usage(3, 50)))

    monkeypatch.setattr(engine, "_one", nasty)
    browser.value("document.getElementById('new').click()")
    say(browser, "<img src=x onerror='window.bitten=1'>")
    browser.until("document.querySelector('.again')")
    said = "document.querySelector('.assistant .said')"
    assert browser.value("window.bitten") is None
    assert browser.value("document.querySelectorAll('#chat img, #chat script, #chat b').length") == 0
    assert browser.value(f"[...{said}.querySelectorAll('a')].map((a) => a.href).join()") \
        == "https://example.org/a,http://127.0.0.1:1/x.png"
    assert browser.value(f"{said}.querySelector('h1').textContent") == "Title"
    assert browser.value(f"{said}.querySelector('pre').textContent") == "<script>window.bitten=1</script>"
    assert browser.value(f"{said}.querySelectorAll('td').length") == 2
    assert browser.value(f"{said}.querySelector('ul ul code').textContent") == "code"
    assert browser.value(f"{said}.querySelector('strong').textContent") == "strong"


@needs_browser
def test_it_needs_nothing_from_elsewhere_and_fits_a_phone(page: tuple[Browser, Running]) -> None:
    browser, running = page
    assert all(url.startswith(running.url) for url in browser.requested()), browser.requested()
    assert browser.complaints() == []  # no violation of the CSP, no error
    assert browser.value("document.documentElement.scrollWidth") <= 390
    assert browser.value("getComputedStyle(document.querySelector('aside')).display") == "none"
    light = browser.value("getComputedStyle(document.body).backgroundColor")
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert browser.value("getComputedStyle(document.body).backgroundColor") != light


def test_the_files_of_the_page_name_no_other_place() -> None:
    """Also where there is no browser to look."""
    for file in PAGE.iterdir():
        text = file.read_text(encoding="utf-8")
        assert "innerHTML" not in text and "eval(" not in text and "document.write" not in text, file
        for word in ("http://", "https://"):
            assert text.count(word) == text.count(f"{word}www.w3.org/2000/svg"), file
        assert Path(file).stat().st_size < 64 << 10

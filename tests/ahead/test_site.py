"""The page of a language model: its text is `morpho run`'s, in node and in a browser."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from libraries import SECONDS, needs
from opened_page import opened

import morpho as mo
from morpho.ahead.site import export_site, tokenizer_settings
from morpho.cli.server.static import server

PROMPT = "Once upon a time, the king"
TEXTS = ["We've  12 apples!\n\n", "ünïcödé 日本語 🙂 ½ \u00a0 x\u0085y\ufeffz", "<|endoftext|>hi",
         "  lead", "a\tb\r\n c"]
TOKENS = 24


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    export_site(mo.models.SHIPPED, place)
    return place


def written(prompt: str = PROMPT) -> str:
    """What `morpho run --temperature 0` goes on with."""
    model, tokenizer = mo.models.load_with_tokenizer(mo.models.SHIPPED)
    ids = tokenizer.encode(prompt)
    made = list(mo.models.generate(model, ids, max_new_tokens=TOKENS, temperature=0.0))
    return tokenizer.decode([*ids, *made])[len(prompt):]


NODE = """
import fs from "fs";
const [folder, text] = process.argv.slice(2), job = JSON.parse(text);
const {Library} = await import(`${folder}/morpho.js`);
const {Model, choose} = await import(`${folder}/text.js`);
const {Tokenizer} = await import(`${folder}/tokenizer.js`);
const read = (name) => JSON.parse(fs.readFileSync(`${folder}/${name}`));
const site = read("site.json"), wasm = (name) => fs.readFileSync(`${folder}/${name}`);
const modules = [{bytes: wasm("model.wasm")}, {bytes: wasm("model-exact.wasm"), exact: true}];
const library = Library.choose(job.exact ? modules.slice(1) : modules, read("model.json"));
async function* pieces() {
    const weights = wasm("model.safetensors");
    if (job.damaged) weights[weights.length - 5] ^= 1;
    yield weights.subarray(0, 1000);
    yield weights.subarray(1000);
}
let answer = "", refused = "";
const tokenizer = new Tokenizer(read("tokenizer.json"), site.tokenizer);
try {
    await library.load(pieces());
    const model = new Model(library, tokenizer, site);
    for (const each of model.answer(job.request)) answer += each.text;
    for (const each of model.answer({...job.request, temperature: 0.9, top_k: 40, top_p: 0.9, seed: 3})) refused = "";
} catch (error) { refused = error.message; }
const draws = job.logits.map(([logits, options]) => choose(logits, [0], options, () => 0.999999));
console.log(JSON.stringify({answer, refused, draws, ids: job.texts.map((each) => tokenizer.encode(each))}));
"""


def in_node(site: Path, tmp_path: Path, flags: tuple[str, ...] = (), **job: Any) -> Any:
    needs("node")
    (site / "package.json").write_text('{"type": "module"}')
    (tmp_path / "run.mjs").write_text(NODE)
    request = {"text": PROMPT, "tokens": TOKENS, "temperature": 0}
    text = json.dumps({"request": request, "texts": TEXTS, "logits": [], **job})
    done = subprocess.run(["node", *flags, str(tmp_path / "run.mjs"), str(site), text], capture_output=True, text=True,
                          timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_text_and_tokens_are_those_of_python(site: Path, tmp_path: Path) -> None:
    made = in_node(site, tmp_path, exact=True)
    assert made["answer"] == written() and made["refused"] == ""
    _, tokenizer = mo.models.load_with_tokenizer(mo.models.SHIPPED)
    assert made["ids"] == [list(tokenizer.encode(text)) for text in TEXTS]


def test_weights_of_another_library_are_refused(site: Path, tmp_path: Path) -> None:
    assert "damaged or of another library" in in_node(site, tmp_path, damaged=True, exact=True)["refused"]


def test_choices_keep_to_their_cuts(site: Path, tmp_path: Path) -> None:
    logits = [1.0, 3.0, 2.0, 3.0]
    cases = [(logits, {"temperature": 0}), (logits, {"temperature": 1, "top_k": 2}), (logits, {"temperature": 1}),
             (logits, {"temperature": 1, "top_p": 0.3}), ([5.0, 4.0], {"temperature": 0, "penalty": 2.0})]
    assert in_node(site, tmp_path, logits=cases)["draws"] == [1, 3, 0, 1, 1]


def test_a_tokenizer_that_the_page_has_not_is_named() -> None:
    model = {"type": "BPE", "vocab": {}, "merges": []}
    assert tokenizer_settings({"model": model, "pre_tokenizer": {"type": "Digits", "individual_digits": True}})[
        "stages"] == [r"\p{N}"]
    for file, words in (({"model": {"type": "Unigram"}}, "Unigram"),
                        ({"model": model, "normalizer": {"type": "Lowercase"}}, "Lowercase"),
                        ({"model": model, "pre_tokenizer": {"type": "Metaspace"}}, "Metaspace")):
        with pytest.raises(mo.errors.ArgumentError, match=words):
            tokenizer_settings(file)


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    with server(site, "127.0.0.1", 0) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{running.server_address[1]}"
        running.shutdown()


def test_the_static_server_keeps_to_its_folder(address: str, site: Path) -> None:
    (site / ".hidden").write_text("no")
    connection = http.client.HTTPConnection(address)
    for path, status in (("/", 200), ("/model.wasm", 200), ("/none", 404), ("/.hidden", 404),
                         ("/../../etc/passwd", 404), ("/%2e%2e/%2e%2e/etc/passwd", 404)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status, path
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert answer.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    connection.request("GET", "/model.wasm")
    assert connection.getresponse().headers["Content-Type"] == "application/wasm"


def test_the_page_writes_what_morpho_run_writes(address: str) -> None:
    with opened(f"http://{address}/") as page:
        page.wait("document.body && document.body.dataset.busy === 'false'")
        page.value(f"document.getElementById('prompt').value = {json.dumps(PROMPT)};"
                   f"document.getElementById('tokens').value = {TOKENS};"
                   "document.getElementById('temperature').value = 0;"
                   "document.getElementById('form').requestSubmit()")
        page.wait("document.getElementById('state').textContent.includes(' tokens in ')")
        assert page.value("document.querySelector('.assistant').textContent") == written()
        assert page.value("window.crossOriginIsolated")
        assert page.problems == []


@pytest.mark.slow
def test_a_drawn_digit_is_told(tmp_path: Path) -> None:
    """The example trains a net, and its page says which digits are drawn with the pointer."""
    example = Path(__file__).resolve().parents[2] / "examples" / "37_digit_page.py"
    done = subprocess.run([sys.executable, str(example), str(tmp_path / "digits")], capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stderr
    lines = ["50 22 27 59 87 82 50", "32 50 59", "22 50 82 75 29 89", "21 71 54 76 79 29", "69 60 26 86",
             "80 20 24 74 78 59 28", "70 34 27 59 87 55 26", "20 80 49", "55 22 50 82 55 27 59 87 55",
             "73 55 22 50 72 79"]
    script = """(line) => {
        document.getElementById("clear").click();
        const paper = document.getElementById("paper"), box = paper.getBoundingClientRect();
        const send = (kind, [x, y]) => paper.dispatchEvent(new PointerEvent(kind, {bubbles: true,
            clientX: box.left + box.width * (0.15 + 0.7 * (x / 10 + 0.05)),
            clientY: box.top + box.height * (0.15 + 0.7 * (y / 10 + 0.05))}));
        const corners = line.split(" ").map((word) => [Number(word[0]), Number(word[1])]);
        send("pointerdown", corners[0]);
        for (const corner of corners) send("pointermove", corner);
        send("pointerup", corners[0]);
        return document.getElementById("answer").textContent;
    }"""
    with server(tmp_path / "digits", "127.0.0.1", 0) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        with opened(f"http://127.0.0.1:{running.server_address[1]}/") as page:
            page.wait("document.getElementById('answer') && document.getElementById('answer').textContent === 'Draw.'")
            told = [page.value(f"({script})({json.dumps(line)})") for line in lines]
            assert page.problems == []
        running.shutdown()
    right = sum(text == f"This is a {number}." for number, text in enumerate(told))
    assert right >= 9, told

"""A page on which you draw a digit and a convolutional net says which one it is: static files, without a server's help.

    python examples/37_digit_page.py site && morpho serve --static site

The digits to learn from are drawn here: lines through a few points, turned, stretched and moved at random.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import morpho as mo
from morpho import nn
from morpho.ahead.site import page_file

SIDE, BRUSH = 20, 1.5  # pixels
LINES = {  # x, y of the points of each digit, in tenths
    0: "50 22 27 59 87 82 50", 1: "32 50 59", 2: "22 50 82 75 29 89", 3: "21 71 54 76 79 29", 4: "69 60 26 86",
    5: "80 20 24 74 78 59 28", 6: "70 34 27 59 87 55 26", 7: "20 80 49", 8: "55 22 50 82 55 27 59 87 55",
    9: "73 55 22 50 72 79"}
rng = np.random.default_rng(0)


def points(digit):
    """Sixty points along the lines of a digit, in a square of side 1."""
    corners = np.array([[int(word[0]) / 10 + 0.05, int(word[1]) / 10 + 0.05] for word in LINES[digit].split()])
    at = np.linspace(0, len(corners) - 1, 60)
    low = np.minimum(at.astype(int), len(corners) - 2)
    return corners[low] + (corners[low + 1] - corners[low]) * (at - low)[:, None]


def draw(count):
    """Images (count, 1, SIDE, SIDE) and the digits that they show."""
    digits = rng.integers(0, 10, count)
    turn = np.eye(2) + rng.normal(0, 0.12, (count, 2, 2))
    middle = SIDE / 2 + rng.normal(0, 1, (count, 1, 2))
    places = (np.stack([points(digit) for digit in digits]) - 0.5) @ turn * rng.uniform(11, 17, (count, 1, 1)) + middle
    rows, columns = np.mgrid[:SIDE, :SIDE] + 0.5
    far = np.full((count, SIDE, SIDE), 9.0)
    for x, y in places.transpose(1, 2, 0):
        far = np.minimum(far, np.hypot(columns - x[:, None, None], rows - y[:, None, None]))
    return np.clip(BRUSH + 0.5 - far, 0, 1)[:, None].astype(np.float32), digits


nn.seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(12, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(600, 10))
opt = mo.optim.AdamW(model.parameters(), lr=4e-3)


@mo.compile
def step(images, digits):
    loss = mo.cross_entropy(model(images), digits)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss


for _ in range(110):
    images, digits = draw(64)
    step(mo.asarray(images), mo.asarray(digits))
model.eval()
images, digits = draw(500)
print(f"{np.mean(mo.compile(model)(images).numpy().argmax(axis=1) == digits):.0%} of 500 digits are right")

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Draw a digit</title>
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self';
 connect-src 'self'; img-src 'self'">
<link rel="icon" href="icon.svg"><link rel="stylesheet" href="page.css">
<script type="module" src="draw.js"></script></head>
<body><h1>Draw a digit</h1><canvas id="paper" width="20" height="20"></canvas>
<p id="answer" role="status">Loading</p><p><button id="clear">Clear</button></p></body></html>
"""
SCRIPT = """
import {Library} from "./morpho.js";
const SIDE = 20, BRUSH = 1.5, get = (id) => document.getElementById(id), bytes = async (name) =>
    new Uint8Array(await (await fetch(name)).arrayBuffer());
const manifest = await (await fetch("exact/digit.json")).json();
const library = Library.choose([{bytes: await bytes("quick/digit.wasm")},
                                {bytes: await bytes("exact/digit.wasm"), exact: true}], manifest);
const digit = library.function("digit"), pixels = new Float32Array(SIDE * SIDE), paper = get("paper");
const input = manifest.functions.digit.fields[0].name;
let last = null;
function show() {
    const image = new ImageData(SIDE, SIDE);
    pixels.forEach((value, i) => image.data.set([0, 0, 0, 255 * value], 4 * i));
    paper.getContext("2d").putImageData(image, 0, 0);
}
function dot(x, y) {
    for (let i = 0; i < SIDE * SIDE; i++) {
        const far = Math.hypot(i % SIDE + 0.5 - x, Math.floor(i / SIDE) + 0.5 - y);
        pixels[i] = Math.max(pixels[i], Math.min(1, Math.max(0, BRUSH + 0.5 - far)));
    }
}
function place(event) {
    const box = paper.getBoundingClientRect();
    return [(event.clientX - box.left) * SIDE / box.width, (event.clientY - box.top) * SIDE / box.height];
}
paper.addEventListener("pointerdown", (event) => { last = place(event); });
paper.addEventListener("pointermove", (event) => {
    if (!last) return;
    const next = place(event);
    for (let i = 0; i <= 8; i++) dot(last[0] + (next[0] - last[0]) * i / 8, last[1] + (next[1] - last[1]) * i / 8);
    last = next;
    show();
    const scores = Object.values(digit({[input]: pixels}))[0];
    get("answer").textContent = `This is a ${scores.indexOf(Math.max(...scores))}.`;
});
addEventListener("pointerup", () => { last = null; });
get("clear").addEventListener("click", () => { pixels.fill(0); show(); get("answer").textContent = "Draw."; });
get("answer").textContent = "Draw.";
"""
site = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "site"
for folder, target in (("quick", "wasm32-relaxed"), ("exact", "wasm32-simd128")):
    written = mo.export(model, images[:1], path=site / folder, name="digit", target=target)
for name, text in (("index.html", PAGE.encode()), ("draw.js", SCRIPT.encode()),
                   *((name, page_file(name)) for name in ("morpho.js", "page.css", "icon.svg"))):
    (site / name).write_bytes(text)
print(f"open it with: morpho serve --static {site}")

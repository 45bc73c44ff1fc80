"""Damaged ONNX files: each must load and run, or be an error of one sentence.

    python -m benchmarks.onnx_files.fuzz --rounds 20000 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any

import numpy as np

MOST_SHOWN = 20


def seeds() -> list[tuple[bytes, list[Any]]]:
    """Small models of different kinds, written by Morpho itself, with inputs."""
    import tempfile
    from pathlib import Path

    import morpho as mo

    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    w = mo.ones((4, 2))
    functions = [lambda x: mo.softmax(mo.gelu(x @ w)), lambda x: mo.pad(x[::2, 1:], ((1, 0), (0, 1))),
                 lambda x: mo.scan(lambda c, y: (c + y, c * y), mo.zeros(4), x)[1],
                 lambda x: mo.cond(x.sum() > 1, lambda: x + 1, lambda: x * 2), lambda x: mo.sort(mo.reshape(x, (2, 6)))]
    with tempfile.TemporaryDirectory() as folder:
        return [(Path(mo.onnx.save(function, f"{folder}/{at}.onnx", x)).read_bytes(), [x])
                for at, function in enumerate(functions)]


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """One to four changes: bytes replaced, cut out, repeated, or the file cut off."""
    octets = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(0, max(len(octets), 1)))
        kind = int(rng.integers(0, 5))
        if kind == 0:
            octets[at:at + 1] = bytes([int(rng.integers(0, 256))])
        elif kind == 1:
            octets[at:at + 1] = bytes([octets[at] ^ 1 << int(rng.integers(0, 8))]) if octets else b""
        elif kind == 2:
            del octets[at:at + int(rng.integers(1, 9))]
        elif kind == 3:
            octets[at:at] = octets[at:at + int(rng.integers(1, 33))]
        else:
            del octets[at:]
    return bytes(octets)


ODD = (0, -1, 1, 2, 7, 1 << 31, 1 << 62, -(1 << 63), 3, 5)


def rewritten(data: bytes, rng: np.random.Generator) -> bytes:
    """One to three fields changed and the file written anew, whole and with right lengths: numbers that are odd, names
    and operators exchanged, items dropped and repeated, contents cut."""
    from morpho.onnx.export.message import encode
    from morpho.onnx.proto.wire import decode

    message = decode(memoryview(data), "Model")
    for _ in range(int(rng.integers(1, 4))):
        places: list[tuple[Any, Any]] = []
        texts: list[str] = []
        _walk(message, places, texts)
        holder, key = places[int(rng.integers(0, len(places)))]
        value = holder[key]
        if isinstance(value, list):
            at = int(rng.integers(0, max(len(value), 1)))
            times = 2 * int(rng.integers(0, 2))
            holder[key] = value[:at] + value[at:at + 1] * times + value[at + 1:]
        elif isinstance(value, str):
            holder[key] = texts[int(rng.integers(0, len(texts)))]
        elif isinstance(value, memoryview | bytes):
            holder[key] = bytes(value)[:int(rng.integers(0, len(value) + 1))]
        elif isinstance(value, dict):
            del holder[key]
        else:
            holder[key] = ODD[int(rng.integers(0, len(ODD)))]
    return encode("Model", message)


def _walk(value: Any, places: list[tuple[Any, Any]], texts: list[str]) -> None:
    """Every field and item of a message, and all texts in it."""
    for key, item in [*(value.items() if isinstance(value, dict) else enumerate(value))]:
        places.append((value, key))
        if isinstance(item, dict | list):
            _walk(item, places, texts)
        elif isinstance(item, str):
            texts.append(item)


def fuzzed(seed: int, rounds: int) -> dict[str, Any]:
    """Counts: `ran`, `refused` by a sentence, and `faults`, what else was raised, with the first few told."""
    import morpho as mo
    from morpho.base.errors import MorphoError

    rng, originals = np.random.default_rng(seed), seeds()
    counts: dict[str, Any] = {"ran": 0, "refused": 0, "faults": 0, "told": []}
    with warnings.catch_warnings(), np.errstate(all="ignore"), mo.settings(pool_bytes=1 << 30):
        warnings.simplefilter("ignore")
        for turn in range(rounds):
            data, inputs = originals[turn % len(originals)]
            try:
                mo.onnx.loads((damaged if turn % 4 == 0 else rewritten)(data, rng))(*inputs)
                counts["ran"] += 1
            except MorphoError:
                counts["refused"] += 1
            except Exception as error:
                counts["faults"] += 1
                counts["told"].append(f"round {turn}: {type(error).__name__}: {error}"[:300])
                del counts["told"][MOST_SHOWN:]
    return counts


def main() -> int:
    """Fuzz, and say how often what happened."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    counts = fuzzed(arguments.seed, arguments.rounds)
    for line in counts.pop("told"):
        print(line)
    print(counts)
    return int(counts["faults"] > 0)


if __name__ == "__main__":
    sys.exit(main())

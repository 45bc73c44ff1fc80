"""One text of a GGUF file beside the best llama.cpp build that installs: milliseconds of processor time a token.

`npm install node-llama-cpp` in some folder brings a build for each kind of processor (AVX2, VNNI, AMX) and takes the
best at run time; `python -m benchmarks.serve.best_llama --node FOLDER [--file MODEL.gguf] [--threads N]` measures it
and Morpho, exact and with activations in 8 bits, in alternating processes, and names the instruction sets that it uses.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PREFILL, DECODE, ROUNDS = 256, 32, 3
SCRIPT = Path(__file__).parents[1] / "peers" / "llama_cpp" / "node.mjs"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve.best_llama")
    parser.add_argument("--node", type=Path, required=True, help="folder with node_modules/node-llama-cpp")
    parser.add_argument("--file", type=Path, help="a GGUF file; default: SmolLM2's, which `morpho models pull` fetches")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--own", choices=["exact", "int8"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.own:
        print(json.dumps(own(given.file, given.threads, given.own)))
        return
    import morpho as mo

    file = given.file or mo.weights.model_path("smollm2")
    again = [sys.executable, "-m", "benchmarks.serve.best_llama", "--node", str(given.node), "--file", str(file),
             "--threads", str(given.threads), "--own"]
    ways = {"exact": [*again, "exact"], "int8": [*again, "int8"],
            "llama.cpp": ["node", str(SCRIPT), str(given.node.resolve()), str(file), str(PREFILL), str(DECODE),
                          str(given.threads)]}
    least: dict[str, dict[str, float]] = {way: {} for way in ways}
    for _ in range(ROUNDS):
        for way, command in ways.items():
            run = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if run.returncode:
                raise SystemExit(f"{way}: {run.stderr.strip()[-400:]}")
            answer = json.loads(run.stdout.strip().splitlines()[-1])
            if "build" in answer and "build" not in least:
                parts = [part.strip() for part in answer["build"].split("|")]
                sets = " ".join(part.split("=")[0].strip() for part in parts if part.endswith("1"))
                print(f"llama.cpp is built for {sets}")
                least["build"] = {}
            for found in answer["rounds"]:
                for part in ("prefill", "decode"):
                    cpu = found[part]["cpu"] / (PREFILL if part == "prefill" else 1)
                    least[way][part] = min(cpu, least[way].get(part, cpu))
    print(f"{file.name}, {given.threads} threads, least of {3 * ROUNDS}: ms of processor time a token")
    for way in ways:
        print(f"{way:12}" + "".join(
            f"{part} {least[way][part]:7.2f} ({least['llama.cpp'][part] / least[way][part]:.2f}x)   "
            for part in ("prefill", "decode")))


def own(file: Path, threads: int, way: str) -> dict[str, Any]:
    """Morpho's rounds, as the other script has them."""
    import morpho as mo
    from morpho.models.text.generators import Generator

    rounds = []
    with mo.settings(threads=threads):
        model, _ = mo.models.load_with_tokenizer(file, activations=way)
        generator = Generator(model.eval(), 2 * PREFILL)
        ids = [300 + n * 7919 % 40000 for n in range(PREFILL)]
        for number in range(ROUNDS + 1):
            generator.ids = []
            begun = time.process_time()
            token = int(generator.start(ids).argmax())
            read = time.process_time()
            for _ in range(DECODE):
                token = int(generator.step(token).argmax())
            if number:  # the first compiles
                rounds.append({"prefill": {"cpu": 1e3 * (read - begun)},
                               "decode": {"cpu": 1e3 * (time.process_time() - read) / DECODE}})
    return {"rounds": rounds}


if __name__ == "__main__":
    main()

"""Makes the model that ships with Morpho out of a finished run: weights as bfloat16, the tokenizer, the configuration.

    morpho train --data benchmarks/corpus/corpus.txt.xz --out shipped-run --vocabulary 2048 --context 256 --layers 4 \\
        --width 256 --heads 4 --batch 32 --steps 3600 --until 2906 --lr 2e-3 --warmup 100 --dropout 0.1
    python -m benchmarks.train.ship shipped-run
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import morpho as mo
from morpho.weights.files import load, save

TARGET = Path(mo.__file__).parent / "models" / "shipped"
MOST_BYTES = 8_000_000


def ship(run: Path, target: Path = TARGET) -> int:
    """Write the files; returns their bytes."""
    target.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.astype(mo.bfloat16) for name, tensor in load(run / "model.safetensors").items()}
    save(target / "model.safetensors", weights)
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    (target / "config.json").write_text(json.dumps({**config, "dropout": 0.0}, indent=1), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (run / name).exists():
            (target / name).write_text((run / name).read_text(encoding="utf-8"), encoding="utf-8")
    total = sum(file.stat().st_size for file in target.iterdir())
    if total > MOST_BYTES:
        raise SystemExit(f"{total} bytes are more than the {MOST_BYTES} that the wheel has room for")
    return total


if __name__ == "__main__":
    print(f"{ship(Path(sys.argv[1])):,} bytes in {TARGET}")

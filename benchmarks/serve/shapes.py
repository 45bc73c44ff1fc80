"""Models of 1 and 8 billion weights with random values: prefill of 512 tokens and decoding, beside a read sweep of the
weights' bytes and beside transformers in bfloat16.

`python -m benchmarks.serve.shapes` measures every part in a process of its own, which ends after 100 seconds
(`--seconds`) whatever it has done. `--shapes 1b 8b`, `--kinds q4_1 q4_wm q8_0 bfloat16`, `--threads N` and
`--ways exact int8 transformers` choose; `--layers N` builds a model of fewer layers. Weights of a GGUF file come as
these layouts: Q4_0 and Q4_1 as q4_1, Q4_K as q4_wm, Q8_0 as q8_0.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

SHAPES = {
    "small": {"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64},
    "1b": {"vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
           "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64},
    "8b": {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
           "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
}
KINDS = ("q4_1", "q4_wm", "q8_0", "bfloat16")
MEASURED = {"exact": KINDS, "int8": ("q4_1", "q8_0"), "transformers": ("bfloat16",)}  # by way
PREFILL, DECODED, LENGTH = 512, 48, 1024
PART_SECONDS, MEASURED_SECONDS = 100, 20
POOL = 1 << 24  # random bytes that all weights are copied from, so that each lies in memory of its own


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve.shapes")
    parser.add_argument("--shapes", nargs="+", choices=[*SHAPES], default=["1b", "8b"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[*KINDS])
    parser.add_argument("--ways", nargs="+", choices=[*MEASURED], default=[*MEASURED])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=PART_SECONDS, help="after which a part is ended")
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        print(json.dumps(part(given.shapes[0], given.kinds[0], given.ways[0], given.threads, given.layers)))
        return
    print(machine(), flush=True)
    print(f"{'shape':6}{'weights':10}{'way':14}{'GB read':>8}{'prefill tok/s':>15}{'decode tok/s':>14}{'of sweep':>10}"
          f"{'sweep GB/s':>12}{'ready s':>9}{'peak GB':>9}", flush=True)
    for shape in given.shapes:
        for way in given.ways:
            for kind in given.kinds:
                if kind in MEASURED[way]:
                    show(shape, kind, way, given)


def show(shape: str, kind: str, way: str, given: Any) -> None:
    """Measure one part in another process and print its line."""
    command = [sys.executable, "-m", "benchmarks.serve.shapes", "--part", "--shapes", shape, "--kinds", kind, "--ways",
               way, "--threads", str(given.threads), "--layers", str(given.layers)]
    start = f"{shape:6}{kind:10}{way:14}"
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=given.seconds)
    except subprocess.TimeoutExpired:
        print(f"{start}not done within {given.seconds} s", flush=True)
        return
    if run.returncode:
        print(f"{start}failed ({run.returncode}): {' / '.join(run.stderr.strip().splitlines()[-3:])[:400]}", flush=True)
        return
    found = json.loads(run.stdout.strip().splitlines()[-1])
    print(f"{start}{found['bytes'] / 1e9:8.2f}{found['prefill']:15.1f}{found['decode']:14.2f}"
          f"{found['bytes'] * found['decode'] / found['sweep']:10.1%}{found['sweep'] / 1e9:12.1f}{found['ready']:9.1f}"
          f"{found['peak'] / 1e9:9.2f}", flush=True)


def machine() -> str:
    """Processor, cores, and the instruction sets that matter here."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        text = file.read()
    name = next((line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")), "unknown")
    flags = {word for line in text.splitlines() if line.startswith("flags") for word in line.split()}
    sets = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16")
            if flag in flags]
    return f"{name}, {len(os.sched_getaffinity(0))} cores, {' '.join(sets)}"


def part(shape: str, kind: str, way: str, threads: int, layers: int) -> dict[str, float]:
    """Tokens a second of prefill and decoding, bytes a second of a plain read, seconds until the first token."""
    sizes = {**SHAPES[shape], **({"num_hidden_layers": layers} if layers else {})}
    start = time.perf_counter()
    prompt = [int(n) for n in np.random.default_rng(0).integers(0, sizes["vocab_size"], PREFILL)]
    if threads:
        os.environ["MORPHO_THREADS"] = str(threads)
    begin, step, count = (peer if way == "transformers" else own)(sizes, kind, way, threads)
    begin(prompt)
    ready = time.perf_counter() - start
    prefills, steps = [], []
    until = time.perf_counter() + MEASURED_SECONDS
    for turn in range(3):
        prefills.append(seconds(lambda turn=turn: begin([*prompt[:-1], turn + 1][turn + 1:] + prompt[:turn + 1])))
        for token in range(DECODED):
            steps.append(seconds(lambda token=token: step(token)))
            if time.perf_counter() > until:
                break
        if time.perf_counter() > until:
            break
    return {"bytes": count, "prefill": PREFILL / min(prefills), "decode": 1 / float(np.median(steps)),
            "sweep": sweep(min(count, 4 << 30), threads), "ready": ready, "peak": peak_bytes()}


def seconds(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def peak_bytes() -> int:
    with open("/proc/self/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def sweep(count: int, threads: int) -> float:
    """Bytes a second of the fastest sum over so many bytes of float32: by Morpho, and by PyTorch where it is there."""
    import morpho as mo

    numbers = np.full(count // 4, 0.5, np.float32)
    x, total = mo.asarray(numbers), mo.compile(mo.sum)
    sums = [lambda: total(x).item()]
    try:
        import torch

        theirs = torch.from_numpy(numbers)
        sums.append(lambda: theirs.sum().item())
    except ImportError:
        pass
    return max(count / min(seconds(each) for _ in range(5)) for each in sums)


# -- Morpho ------------------------------------------------------------------------------------------------------------
def own(sizes: dict[str, int], kind: str, way: str, threads: int) -> tuple[Any, Any, int]:
    """Functions that read a prompt and compute one more token, and the bytes of the weights that a token reads."""
    import morpho as mo
    from morpho.models.rounding import round_activations
    from morpho.models.text.generators import Generator
    from morpho.nn import init
    from morpho.nn.layers.linear import Embedding, Linear
    from morpho.nn.layers.quantised import QuantisedLinear

    dtype = mo.bfloat16 if kind == "bfloat16" else mo.float32
    with init.undrawn():
        model = mo.models.create("llama", **sizes, max_position_embeddings=LENGTH, tie_word_embeddings=False).astype(
            dtype)
    pool = np.random.default_rng(0).integers(0, 256, POOL, np.uint8)
    numbers = mo.asarray((pool[:1 << 20].astype(np.float32) - 127.5) * np.float32(0.02 / 74)).astype(dtype).realise()
    count, values = 0, {}
    for name, tensor in model.state_dict().items():
        shape = tuple(int(size) for size in tensor.shape)
        if len(shape) == 1:
            values[name] = mo.ones(shape, dtype=dtype)
            continue
        *parents, last, _ = name.split(".")
        parent: Any = model
        for each in parents:
            parent = getattr(parent, each)
        layer = getattr(parent, last)
        if isinstance(layer, Linear) and kind != "bfloat16":
            weight = packed(pool, shape, kind)
            count += weight.nbytes
            setattr(parent, last, QuantisedLinear(weight))
        else:
            values[name] = repeated(numbers, shape)
            count += 0 if isinstance(layer, Embedding) else 2 * shape[0] * shape[1]
    model.load_state_dict(values)
    del values
    if way == "int8":
        round_activations(model)
    generator = Generator(model.eval(), LENGTH)

    def begin(prompt: list[int]) -> Any:
        generator.ids = []
        return generator.start(prompt)

    return begin, generator.step, count


def packed(pool: np.ndarray, shape: tuple[int, ...], kind: str) -> Any:
    """Random codes in memory of their own, with scales such that values are about 0.02."""
    import morpho as mo
    from morpho.ops.neural.quantised import BLOCK, LAYOUTS

    layout, (n, k) = LAYOUTS[kind], shape
    raw = np.resize(pool, n * k // BLOCK * layout.block_bytes).reshape(-1, layout.block_bytes)
    scale = 0.02 / (8 if layout.bits == 4 else 74)
    headers = np.array([scale, -8 * scale][:layout.headers] * layout.groups, "<f4" if layout.wide else "<f2")
    raw[:, :layout.header_bytes] = headers.view(np.uint8)
    return mo.Quantised.of_tensor(mo.asarray(raw.reshape(n, -1)), (n, k), kind)


def repeated(numbers: Any, shape: tuple[int, ...]) -> Any:
    """The same numbers again and again, written out."""
    import morpho as mo

    count = int(np.prod(shape))
    unit = math.gcd(count, int(numbers.shape[0]))
    return mo.reshape(mo.broadcast_to(numbers[:unit], (count // unit, unit)) + 0, shape).realise()


# -- transformers ------------------------------------------------------------------------------------------------------
def peer(sizes: dict[str, Any], kind: str, way: str, threads: int) -> tuple[Any, Any, int]:
    """The same shape by transformers on PyTorch in bfloat16, with a cache of keys and values of its own."""
    import torch
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    config = LlamaConfig(**sizes, max_position_embeddings=LENGTH, tie_word_embeddings=False)
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model = model.to_empty(device="cpu").eval()
    pool = (torch.rand(POOL) - 0.5).mul_(0.04).to(torch.bfloat16)
    rotary = type(model.model.rotary_emb)(config)
    model.model.rotary_emb = rotary
    with torch.no_grad():
        for parameter in model.parameters():
            flat = parameter.view(-1)
            for at in range(0, flat.numel(), POOL):
                flat[at:at + POOL] = pool[:min(POOL, flat.numel() - at)]
    count = sum(2 * p.numel() for name, p in model.named_parameters() if p.ndim == 2 and "embed_tokens" not in name)
    state: dict[str, Any] = {}

    def begin(prompt: list[int]) -> Any:
        state["cache"] = DynamicCache()
        with torch.inference_mode():
            return model(torch.tensor([prompt]), past_key_values=state["cache"], use_cache=True,
                         logits_to_keep=1).logits.sum().item()

    def step(token: int) -> Any:
        with torch.inference_mode():
            return model(torch.tensor([[token]]), past_key_values=state["cache"], use_cache=True).logits.sum().item()

    return begin, step, count


if __name__ == "__main__":
    main()

"""A digest of the LLVM text of every kernel that a corpus of programs compiles, so that a refactoring can show that it
changes none.

    python benchmarks/codegen_digest.py before.json           # on the old commit
    python benchmarks/codegen_digest.py after.json            # on the new one
    python benchmarks/codegen_digest.py before.json after.json     # what differs
    python benchmarks/codegen_digest.py before.json --texts before/     # the texts too, a file per digest, for diff

Names of functions hold a hash of Morpho's source and are left out of the text.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
NAME = re.compile(r"kernel_[0-9a-f]{32}")
FOREIGN = (("aarch64", "neon"), ("x86_64", "avx2"), ("x86_64", "amx"))  # generated as text, whatever this machine is


def collect(folder: Path | None = None) -> dict[str, list[str]]:
    """By instruction set: digests of all modules, sorted. With a folder, every text is kept there under its digest."""
    import bits

    import morpho as mo
    from morpho.base.machine import available_isas, choose_isa, foreign_machine, machine

    try:
        from morpho.backends.code.compiler import llvm, queue
    except ImportError:  # commits before the folder `code`
        from morpho.backends.cpu.compiler import llvm, queue  # type: ignore[no-redef]
    plain = llvm.compile_text
    queue.MOST_PROCESSES = 1  # another process compiles unseen
    found: dict[str, set[str]] = {}

    def compile_text(text: str, isa: Any, *rest: Any) -> bytes:
        found.setdefault(isa.name, set()).add(digest_of(NAME.sub("kernel", text), folder))
        return plain(text, isa, *rest)

    kernels = seen_kernels()
    llvm.compile_text = compile_text
    with mo.settings(cache=False, threads=2):
        for isa in available_isas(machine()):
            if isa in ("vector128", "vector512"):
                continue
            print(isa, len(bits.digests(isa)), "programs")
            with mo.settings(isa=isa):
                models(mo)
    print(len(kernels), "kernels for other instruction sets")
    for architecture, name in FOREIGN:
        isa = choose_isa(name, foreign_machine(architecture))
        found[f"{name}, text only"] = {text_digest(kernel, isa, folder) for kernel in kernels}
    return {isa: sorted(texts) for isa, texts in sorted(found.items())}


def seen_kernels() -> dict[Any, None]:
    """A set that every kernel goes into when its code is looked for: its text for other machines is digested too."""
    try:
        from morpho.backends.code.compiler import code
    except ImportError:  # commits before the folder `code`
        from morpho.backends.cpu.compiler import code  # type: ignore[no-redef]
    kernels: dict[Any, None] = {}
    plain = code.kernel_key

    def kernel_key(kernel: Any, isa: Any) -> str:
        kernels[kernel] = None
        return plain(kernel, isa)

    code.kernel_key = kernel_key
    return kernels


def text_of(kernel: Any, isa: Any) -> str:
    """The LLVM text of a kernel."""
    try:
        from morpho.backends.kernels.generators import generate
    except ImportError:  # commits before the folder `kernels`
        from morpho.backends.cpu.generators import generate  # type: ignore[no-redef]

    return generate(kernel, isa, "kernel")


def digest_of(text: str, folder: Path | None) -> str:
    """The digest of a text, which is kept where a folder is given."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    if folder is not None:
        (folder / f"{digest}.ll").write_text(text, encoding="utf-8")
    return digest


def text_digest(kernel: Any, isa: Any, folder: Path | None) -> str:
    """The digest of a kernel's text, or of the error for an instruction set that it was not lowered for."""
    try:
        text = text_of(kernel, isa)
    except Exception as error:
        text = repr(error)
    return digest_of(text, folder)


def models(mo: Any) -> None:
    """A transformer block and its gradient, convolutions, products of many sizes, dynamic sizes, rows and columns."""
    x, w, v = mo.ones((24, 48)) * 0.1, mo.ones((48, 48)) * 0.02, mo.ones((48, 192)) * 0.01

    def block(x: Any, w: Any, v: Any) -> Any:
        normal = mo.layer_norm(x)
        heads = mo.permute_dims(mo.reshape(normal @ w, (24, 4, 12)), (1, 0, 2))
        seen = mo.permute_dims(mo.attention(heads, heads, heads, causal=True), (1, 0, 2))
        x = x + mo.reshape(seen, (24, 48)) @ w
        return x + mo.gelu(mo.rms_norm(x) @ v) @ mo.permute_dims(v, (1, 0))

    for dtype in (mo.float32, mo.bfloat16):
        given = [t.astype(dtype).realise() for t in (x, w, v)]
        mo.compile(block)(*given)
        mo.compile(lambda *t: mo.grad(lambda *p: mo.sum(block(*p) ** 2), argnums=(1, 2))(*t))(*given)
    for shape, kernel in (((2, 3, 32, 32), (8, 3, 3, 3)), ((1, 8, 16, 16), (16, 8, 1, 1)),
                          ((1, 4, 40, 40), (4, 1, 5, 5))):
        x, w = mo.ones(shape) * 0.5, mo.ones(kernel) * 0.1
        groups = shape[1] // kernel[1]
        mo.compile(lambda x, w, groups=groups: mo.relu(mo.conv2d(x, w, padding=1, groups=groups)))(x, w)
        mo.compile(lambda x, w, groups=groups: mo.grad(lambda v: mo.sum(mo.conv2d(x, v, groups=groups) ** 2))(w))(x, w)
    for m, k, n in ((1, 300, 200), (7, 64, 500), (130, 257, 80), (512, 512, 96)):
        for dtype in (mo.float32, mo.bfloat16, mo.int8):
            a, b = mo.ones((m, k), dtype=dtype), mo.ones((k, n), dtype=dtype)
            mo.compile(lambda a, b: mo.matmul(a, b, dtype=mo.int32 if a.dtype == mo.int8 else None) * 2)(a, b)
    dim = mo.Dim("n", 1, 200)
    f = mo.compile(lambda x: mo.softmax(mo.layer_norm(x) @ mo.permute_dims(x, (1, 0))), dynamic={"x": {0: dim}})
    f(mo.ones((33, 64)))
    y = mo.ones((50, 70))
    mo.compile(lambda y: (mo.cumulative_sum(y, axis=0), mo.take(y, mo.asarray([1, 4]), axis=1), mo.sort(y), y.T * 2,
                          mo.sum(mo.permute_dims(y, (1, 0)) * 3, axis=0), mo.argmax(y, axis=1), mo.var(y)))(y)


def main() -> int:
    if len(sys.argv) == 2 or sys.argv[2] == "--texts":
        folder = Path(sys.argv[3]) if len(sys.argv) > 2 else None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        Path(sys.argv[1]).write_text(json.dumps(collect(folder), indent=1), encoding="utf-8")
        return 0
    before, after = (json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:3])
    different = 0
    for isa in sorted({*before, *after}):
        old, new = set(before.get(isa, ())), set(after.get(isa, ()))
        print(f"{isa}: {len(old)} modules before, {len(new)} after, {len(old & new)} the same")
        different += len(old ^ new)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

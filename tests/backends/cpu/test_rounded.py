"""Products with activations in 8 bits: one rule of rounding on every instruction set, for any rows and threads."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import amx_emulator
import dot_emulator
import numpy as np
import pytest
from test_cross_compile import TRIPLES, library_calls
from test_quantised import BLOCK_BYTES, DOT, TARGETS, random_weight

import morpho as mo
from morpho.backends.code.compiler import code, llvm, queue
from morpho.backends.kernels.generators import generate
from morpho.backends.kernels.quantised import rounded_code
from morpho.backends.kernels.quantised.rounded import RoundedKernel, RoundRowsKernel
from morpho.base.machine import ISAS, available_isas, choose_isa, foreign_machine, machine
from morpho.ir.node import build
from morpho.models.rounding import round_activations
from morpho.tensor.core import Tensor
from morpho.tensor.functions.products.rounded import RoundedWeight

KINDS = ["q8_0", "q4_1", "q4_0"]


def rounded(value: Fraction) -> Fraction:
    """To the nearest float32, ties to even; all numbers here are normal."""
    if not value:
        return value
    exponent = 0
    size = abs(value)
    while size >= 2:
        size, exponent = size / 2, exponent + 1
    while size < 1:
        size, exponent = size * 2, exponent - 1
    step = Fraction(2) ** (exponent - 23)
    return round(value / step) * step  # round() of a fraction is to even


def by_hand(x: np.ndarray, weight: mo.Quantised) -> np.ndarray:
    """The rule of docs/numerics.md in fractions, number by number."""
    raw = weight.data.numpy()
    size = BLOCK_BYTES[weight.kind]
    found = np.zeros((x.shape[0], weight.shape[0]), np.float32)
    for m, row in enumerate(x):
        for n in range(weight.shape[0]):
            total = Fraction(0)
            for block in range(x.shape[1] // 32):
                values = [Fraction(float(each)) for each in row[32 * block:32 * block + 32]]
                most = max(abs(each) for each in values)
                if most < Fraction(2) ** -100:
                    continue
                inverse, scale = rounded(127 / most), rounded(most / 127)
                codes = [round(rounded(each * inverse)) for each in values]
                data = raw[n, size * block:size * block + size]
                d, *least = (Fraction(float(each)) for each in data[:size - (32 if size == 34 else 16)].view("<f2"))
                if weight.kind == "q8_0":
                    weights = [int(each) for each in data[2:].view(np.int8)]
                else:
                    codes_at, less = (4, 0) if weight.kind == "q4_1" else (2, 8)
                    pairs = data[codes_at:]
                    weights = [int(each) & 15 for each in pairs] + [int(each) >> 4 for each in pairs]
                    weights = [each - less for each in weights]
                dot = sum(a * b for a, b in zip(codes, weights, strict=True))
                total = rounded(rounded(scale * d) * dot + total)
                for each in least:
                    total = rounded(rounded(scale * each) * sum(codes) + total)
            found[m, n] = float(total)
    return found


def product(x: np.ndarray, weight: RoundedWeight, **settings: Any) -> np.ndarray:
    with mo.settings(**settings):
        return mo.compile(lambda x: x @ weight)(mo.asarray(x)).numpy()


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a.view(np.int32), b.view(np.int32))


@pytest.mark.parametrize("kind", KINDS)
def test_every_instruction_set_follows_the_rule(kind: str, rng: np.random.Generator) -> None:
    x = (rng.standard_normal((6, 96)) * 10.0 ** rng.integers(-3, 3, (6, 1))).astype(np.float32)
    x[1, :32] = 0
    x[2, 5] = 1e4  # one large value rounds the others of its block away
    weight = mo.quantise(rng.standard_normal((37, 96)).astype(np.float32), kind)
    expected, laid = by_hand(x, weight), RoundedWeight(weight)
    for isa in available_isas(machine()):
        assert same(product(x, laid, isa=isa), expected), isa


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_threads_do_not_matter(kind: str, rng: np.random.Generator) -> None:
    weight = RoundedWeight(random_weight(rng, 130, 160, kind))
    x = rng.standard_normal((70, 160)).astype(np.float32)
    together = product(x, weight, threads=1)
    assert same(product(x, weight, threads=4), together)
    for row in (0, 3, 69):
        assert same(product(x[row:row + 1], weight), together[row:row + 1])
    assert same(product(x[:11], weight), together[:11])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", ["tiles", "smmla"])
def test_matrix_instructions_have_the_same_bits(unit: str, kind: str, rng: np.random.Generator,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """In software: rows that fill a unit, and those that are left over."""
    plain, isa = llvm.compile_text, amx_emulator.NAME if unit == "tiles" else "vector128"
    weight = RoundedWeight(random_weight(rng, 41, 96, kind))
    x = rng.standard_normal((39, 96)).astype(np.float32)
    x[3, :32], x[20, 40] = 0, 1e4
    expected = product(x, weight, isa="scalar")
    emulate = amx_emulator.emulated if unit == "tiles" else dot_emulator.emulated_neon
    for known in ("_addresses", "_by_key"):  # other tests have compiled the kernel for the machine as it is
        monkeypatch.setattr(code, known, {})
    monkeypatch.setitem(ISAS, amx_emulator.NAME, amx_emulator.emulated_isa())
    monkeypatch.setattr(queue, "MOST_PROCESSES", 1)  # another process knows nothing of it
    texts: list[str] = []
    monkeypatch.setattr(llvm, "compile_text", lambda text, *rest: plain(emulate(texts.append(text) or text), *rest))
    if unit == "smmla":
        monkeypatch.setattr(rounded_code, "by_dot", lambda isa: "neon")
        monkeypatch.setattr(rounded_code, "by_matrix", lambda isa: "smmla")
    for rows in (39, 17, 3):
        assert same(product(x[:rows], weight, isa=isa, cache=False), expected[:rows])
    assert any(("tdpbsud" if unit == "tiles" else "smmla") in text for text in texts)


def test_numbers_that_are_not_finite_are_not_hidden() -> None:
    weight = RoundedWeight(mo.quantise(np.ones((16, 64), np.float32), "q8_0"))
    x = np.ones((5, 64), np.float32)
    x[0, 3], x[1, 40], x[2, :], x[3, 0] = np.nan, -np.inf, 1e-38, 3e38
    for isa in available_isas(machine()):
        found = product(x, weight, isa=isa)
        assert np.isnan(found[:2]).all() and (found[2] == 0).all() and np.isfinite(found[3:]).all()


def test_rows_that_share_their_input_are_rounded_once(rng: np.random.Generator) -> None:
    weights = [RoundedWeight(mo.quantise(rng.standard_normal((16, 64)).astype(np.float32), "q8_0")) for _ in range(3)]

    @mo.compile
    def three(x: mo.Tensor) -> Any:
        return [x @ weight for weight in weights]

    three(mo.ones((2, 64)))
    assert sum("kernel quantise_rows" in line for line in str(three.explain()).splitlines()) == 1


MATRIX = [("x86_64", "amx", None, "tdpbsud"), ("x86_64", "amx", ISAS["amx"].needs | {"avx512_vnni"}, "vpdpbusd"),
          ("aarch64", "neon", DOT | {"i8mm"}, "smmla")]


@pytest.mark.parametrize("architecture, name, features, said", TARGETS + MATRIX)
def test_code_for_machines_that_are_not_here(architecture: str, name: str, features: Any, said: str) -> None:
    isa = choose_isa(name, foreign_machine(architecture, features))
    for kernel in (RoundRowsKernel(), *map(RoundedKernel, KINDS)):
        text = llvm.assembly(generate(kernel, isa, "kernel"), isa, TRIPLES[architecture])
        assert not {call.removesuffix("@PLT") for call in library_calls(text)} - {"fmaf"}, kernel
        assert isinstance(kernel, RoundRowsKernel) or said in text or said == "mla"


def test_models_round_their_activations(tmp_path: Any, rng: np.random.Generator) -> None:
    """All families have the option; answers of many rows are those of one, and near the exact ones."""
    mo.nn.seed(3)
    for family, sizes, count in (
            ("llama", {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
                       "num_key_value_heads": 2}, 15),
            ("gpt2", {"n_embd": 64, "n_layer": 1, "n_head": 4, "n_positions": 64}, 5)):
        model = mo.models.create(family, vocab_size=80, **sizes)
        mo.models.save(tmp_path / family, model)
        exact, int8 = mo.models.load(tmp_path / family), mo.models.load(tmp_path / family, activations="int8")
        ids = mo.asarray(rng.integers(0, 80, (1, 12)))
        a, b = exact(ids).numpy(), int8(ids).numpy()
        assert 0 < np.abs(a - b).max() < 0.05 * np.abs(a).max()
        generator = mo.models.Generator(int8)
        assert same(generator.start(ids.numpy()[0].tolist()), b[0, -1])
        assert round_activations(model) == count


def test_the_option_is_checked(tmp_path: Any) -> None:
    with pytest.raises(mo.errors.ArgumentError, match="activations='int4' is not known"):
        mo.models.load(mo.models.SHIPPED, activations="int4")
    with pytest.raises(mo.errors.ShapeError, match="whole blocks of 32"):
        build("quantise_rows", mo.ones((2, 33)).node)
    with pytest.raises(mo.errors.DTypeError, match="not taken"):
        Tensor.of_node(build("quantise_rows", mo.ones((2, 32), dtype=mo.float64).node))

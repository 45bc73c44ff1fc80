"""`mo.certify`: bounds hold over samples of every kind, the checker refuses lies, and what has no rule is named."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import morpho as mo
from benchmarks.certify_attack import attack, cases
from benchmarks.certify_lies import accepted
from morpho.cli.main import app
from morpho.tensor.tools import bound_checker
from morpho.tensor.tools.bound_checker import Refused, check


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_no_sample_is_off_by_more_than_the_bound(kind: str, seed: int, sample: Any) -> None:
    """And the bounds of products are tight; of others `benchmarks.certify_attack` says how tight, over 100,000 rows."""
    names = {name for name, *_ in cases(kind)}
    chosen = set(sample(sorted(names - {"attention of 200", "softmax of 1000"})))
    for name, bound, worst in attack(kind, 1000, seed, chosen):
        assert worst <= bound, (name, bound, worst)
        if name.startswith("matmul") and kind == "float32":
            assert bound < 2 * worst  # sums that are always rounded one way reach it


FUNCTIONS = {"exp": math.exp, "expm1": math.expm1, "log": math.log, "log1p": math.log1p, "log2": math.log2,
             "log10": math.log10, "sin": math.sin, "cos": math.cos, "tanh": math.tanh, "erf": math.erf,
             "sqrt": math.sqrt, "exp2": lambda x: 2.0 ** x, "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
             "softplus": lambda x: math.log1p(math.exp(x)), "silu": lambda x: x / (1 + math.exp(-x)),
             "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
             "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
             "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))), "reciprocal": lambda x: 1 / x}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, rng: np.random.Generator) -> None:
    """Ranges and errors, of an argument that has an error itself."""
    low, high = (0.25, 3.0) if name in ("log", "log2", "log10", "sqrt", "reciprocal") else (-0.9, 4.0)
    function = (lambda x: mo.gelu(x, approximate="tanh")) if name == "gelu_tanh" else getattr(mo, name)
    bound = mo.certify(lambda x: function(x * 0.7 + 0.1), mo.within((1000,), low, high))
    x = np.concatenate([rng.uniform(low, high, 990), [low, high] * 5]).astype(np.float32)
    value = mo.compile(lambda x: function(x * 0.7 + 0.1))(mo.asarray(x)).astype("float64").numpy()
    factor, shift = float(np.float32(0.7)), float(np.float32(0.1))
    wanted = np.array([FUNCTIONS[name](each * factor + shift) for each in x.astype(np.float64)])
    [(least, most)] = bound.ranges
    assert least <= wanted.min() and wanted.max() <= most
    worst = np.abs(value - wanted).max()
    assert worst <= bound.error < 40 * worst


def test_rational_functions_of_the_checker(rng: np.random.Generator) -> None:
    """Bounds of exp, log and square roots hold on both sides, and are narrow."""
    mpmath = pytest.importorskip("mpmath")
    mpmath.mp.prec = 200
    for x in (*rng.uniform(-600, 600, 40), 0.0, 1e-300, -1e-300, 700.0):
        exact = mpmath.exp(mpmath.mpf(float(x)))
        low, high = (mpmath.mpf(f.numerator) / f.denominator
                     for f in (bound_checker.exp_down(Fraction(float(x))), bound_checker.exp_up(Fraction(float(x)))))
        assert low <= exact <= high and high - low <= exact * 2 ** -60
    for x in (*np.exp(rng.uniform(-600, 600, 40)), 1.0, 1 + 2 ** -52):
        y = Fraction(float(x))
        for name in ("log", "sqrt"):
            exact = getattr(mpmath, name)(mpmath.mpf(float(x)))
            low, high = (mpmath.mpf(f.numerator) / f.denominator
                         for f in (getattr(bound_checker, f"{name}_{toward}")(y) for toward in ("down", "up")))
            assert low <= exact <= high


@pytest.mark.parametrize("function, words", [
    (lambda x: 1 / x, "the divisor may be 0"), (mo.log, "its argument may not be positive"),
    (mo.sqrt, "its argument may be negative"), (lambda x: mo.exp(x * 100), "may overflow float32"),
    (lambda x: mo.where(mo.exp(x) < 1, x, 0), "takes a computed value"),
    (lambda x: mo.floor(x * 1.1), "no rule"),
    (mo.special.erfinv, r"\(erfinv\): no rule is known for it"),
    (lambda x: mo.sort(x), "no rule"), (lambda x: mo.softmax(x * 100, axis=-1), "exponentials of float32 vanish"),
    (lambda x: mo.sum(mo.exp(x * 87)), "overflow"), (lambda x: mo.rms_norm(x, eps=0.0), "eps is 0"),
])
def test_refusals_name_the_operation(function: Any, words: str) -> None:
    with pytest.raises(mo.errors.ValueFault, match=words):
        mo.certify(function, mo.within((4, 8), -1, 1))


def test_wrong_ranges() -> None:
    for call in (lambda: mo.within((2,), 1, 0), lambda: mo.within((2,), 0, math.inf),
                 lambda: mo.certify(lambda x: x, mo.asarray([1.0, math.nan]))):
        with pytest.raises(mo.errors.ArgumentError):
            call()


def test_weights_have_their_own_ranges_and_sums() -> None:
    """A captured weight is known: the bound is that of its columns, not of its largest element."""
    rng = np.random.default_rng(0)
    layer = mo.nn.Linear(64, 8)
    loose = mo.certify(lambda x, w: x @ w, mo.within((3, 64), -1, 1), mo.within((64, 8), -0.125, 0.125))
    tight = mo.certify(layer, mo.within((3, 64), -1, 1))
    assert tight.error < loose.error
    x = rng.uniform(-1, 1, (500, 64)).astype(np.float32)
    wanted = x.astype(np.float64) @ layer.weight.numpy().astype(np.float64).T + layer.bias.numpy().astype(np.float64)
    assert np.abs(layer(mo.asarray(x)).numpy() - wanted).max() <= tight.error
    assert tight.parts[0][0].startswith("matmul") and tight.others["float64"] < 1e-9 < tight.others["float16"]
    assert "%  matmul float32" in str(tight)


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    ranges = [mo.within((4, 16), -1, 1), mo.within((16, 8), -1, 1)]
    return [mo.certify(lambda x, w: mo.softmax(mo.gelu(x @ w) * 0.5, axis=-1), *ranges).document,
            mo.certify(lambda x, w: mo.layer_norm(x) @ w + mo.sum(x), *ranges).document]


def test_the_checker_refuses_lies(documents: list[dict[str, Any]], seed: int) -> None:
    """A smaller error, a narrower range, wider inputs, another program or hash."""
    outcomes = accepted(150, seed)
    assert len(outcomes) == 8 and not any(outcomes.values()), outcomes
    with pytest.raises(Refused, match="the hash does not fit"):
        check(documents[0], expected_hash="0" * 64)


def test_damaged_certificates_are_refused(documents: list[dict[str, Any]], rng: np.random.Generator) -> None:
    text = json.dumps(documents[0])
    for _ in range(150):
        place = int(rng.integers(len(text)))
        damaged = text[:place] + chr(ord(text[place]) ^ (1 << int(rng.integers(5)))) + text[place + 1:]
        try:
            document = json.loads(damaged)
        except ValueError:
            continue
        try:
            check(document)
        except Refused:
            continue
        assert bound_checker.program_hash(document) == documents[0]["hash"]  # then the claims are weaker ones
        [claim], [true] = document["bounds"], documents[0]["bounds"]
        assert float.fromhex(claim["error"]) >= float.fromhex(true["error"])
        assert float.fromhex(claim["range"][0]) <= float.fromhex(true["range"][0])


def test_the_checker_alone_and_the_command(documents: list[dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "bound.json"
    file.write_text(json.dumps(documents[0]))
    run = subprocess.run([sys.executable, "-I", bound_checker.__file__, str(file)], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "accepted\n")
    lines = [line for line in Path(bound_checker.__file__).read_text().splitlines() if line.strip()]
    assert len(lines) <= 500 and not any("morpho" in line for line in lines if line.startswith(("import", "from")))
    command = CliRunner()
    assert "accepted" in command.invoke(app, ["certificate", str(file)]).output
    documents[0]["bounds"][0]["error"] = (0.0).hex()
    file.write_text(json.dumps(documents[0]))
    result = command.invoke(app, ["certificate", str(file)])
    assert result.exit_code == 3 and "refused: the error claimed" in result.output

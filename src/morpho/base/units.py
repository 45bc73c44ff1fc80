"""Quantities as text and back: bytes, seconds and rates, with the unit in every name.

Decimal units are powers of 1000 (MB), binary ones powers of 1024 (MiB), as the standards have it.

>>> format_bytes(1_500_000), format_seconds(12.3e-6), format_bytes_per_s(25.6e9)
('1.5 MB', '12.3 us', '25.6 GB/s')
>>> parse_bytes("64MB"), parse_bytes("1.5 GiB"), parse_seconds("250 ms")
(64000000, 1610612736, 0.25)
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from morpho.base.checks import shown
from morpho.base.errors import ValueFault, fail

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

MOST = Decimal("1e30")  # of any quantity
_LARGE = ("", "k", "M", "G", "T", "P", "E")
_BYTES_OF = {"": 1, "b": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("kmgtpe", start=1)
    for suffix, base in (("", 1000), ("b", 1000), ("ib", 1024), ("i", 1024))
}
_SECONDS_OF = {"ns": "1e-9", "us": "1e-6", "µs": "1e-6", "ms": "1e-3", "s": "1", "": "1", "min": "60", "h": "3600"}
_BANDWIDTH = re.compile(r"\s*([\d.]+(?:e[+-]?\d+)?)\s*([kMGTP]?)(bit|B|b)(/s|ps)\s*", re.IGNORECASE)
_FLOPS = re.compile(r"\s*([\d.]+(?:e[+-]?\d+)?)\s*([kMGTPE]?)FLOP(?:/s|S)\s*", re.IGNORECASE)
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)\s*([a-zµ]*)\s*", re.IGNORECASE)


def _short(number: float) -> str:
    """At most one digit after the point, and none where there is nothing to say: 1.5, 12, 340."""
    text = f"{number:.1f}" if abs(number) < 99.95 else f"{number:.0f}"
    return text.removesuffix(".0")


def _scaled(number: float, unit: str) -> str:
    if not math.isfinite(number):
        return f"{number} {unit}"
    power, size = 0, abs(number)
    while size >= 999.5 and power < len(_LARGE) - 1:
        power, size = power + 1, size / 1000
    return f"{_short(math.copysign(size, number) if size else 0.0)} {_LARGE[power]}{unit}"


def format_bytes(nbytes: float) -> str:
    """A size in decimal units.

    >>> format_bytes(0), format_bytes(999), format_bytes(64_000), format_bytes(2_340_000_000)
    ('0 B', '999 B', '64 kB', '2.3 GB')
    """
    return _scaled(nbytes, "B")


def format_binary_bytes(nbytes: float) -> str:
    """A size in binary units, as caches and memory are sold.

    >>> format_binary_bytes(65536), format_binary_bytes(1.5 * 2**30)
    ('64 KiB', '1.5 GiB')
    """
    power, size = 0, abs(nbytes)
    while size >= 1023.95 and power < 6 and math.isfinite(size):
        power, size = power + 1, size / 1024
    unit = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")[power]
    return f"{_short(math.copysign(size, nbytes) if size else 0.0)} {unit}"


def format_seconds(seconds: float) -> str:
    """A time in the unit that reads best.

    >>> format_seconds(0.0021), format_seconds(95), format_seconds(7384), format_seconds(3e-10)
    ('2.1 ms', '1 min 35 s', '2 h 3 min', '0.3 ns')
    """
    size = abs(seconds)
    if size == 0 or not math.isfinite(size):
        return f"{_short(size) if size == 0 else seconds} s"
    sign = "-" if seconds < 0 else ""
    if size >= 59.95:
        minutes = round(size / 60) if size >= 3599.5 else int(round(size) // 60)
        if size >= 3599.5:
            return f"{sign}{minutes // 60} h {minutes % 60} min"
        return f"{sign}{minutes} min {round(size) - 60 * minutes} s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if size >= 0.9995 * scale:
            return f"{sign}{_short(size / scale)} {unit}"
    return f"{sign}{_short(size / 1e-9)} ns"


def format_bytes_per_s(bytes_per_s: float) -> str:
    """A bandwidth.

    >>> format_bytes_per_s(204.8e9)
    '205 GB/s'
    """
    return _scaled(bytes_per_s, "B/s")


def format_flops_per_s(flops_per_s: float) -> str:
    """A rate of arithmetic; a multiply-add is two operations.

    >>> format_flops_per_s(1.25e12)
    '1.2 TFLOP/s'
    """
    return _scaled(flops_per_s, "FLOP/s")


def format_per_s(count_per_s: float, what: str = "") -> str:
    """A rate of anything else.

    >>> format_per_s(1832.0, "tokens"), format_per_s(12.0)
    ('1.8 k tokens/s', '12 /s')
    """
    number, prefix = _scaled(count_per_s, "").split(" ")
    return f"{number} {prefix + ' ' if prefix and what else prefix}{what}/s"


def _split(text: str, kind: str, example: str, operation: str = "units", subject: str = "") -> tuple[str, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise fail(ValueFault, operation, f"{subject}{text!r} is not a {kind}",
                   f"write a number and a unit, as in {example}")
    return match[1], match[2].lower()


def _product(text: str, number: str, factor: Decimal | int, operation: str = "units", subject: str = "") -> Decimal:
    """A quantity in its unit; an exponent of many digits would fill the memory with those of a whole number."""
    try:
        quantity = Decimal(number) * factor
    except ArithmeticError:
        quantity = MOST + 1
    if quantity > MOST:
        raise fail(ValueFault, operation, f"{subject}{shown(text)} is more than any machine has", "write a smaller one")
    return quantity


def parse_bytes(text: str | int, operation: str = "units", argument: str = "") -> int:
    """The bytes a size means; KB and K are 1000, KiB and Ki 1024, no unit is bytes; case does not matter. An error is
    that of the `operation` whose `argument` it is.

    >>> parse_bytes("64MB"), parse_bytes("1.5GiB"), parse_bytes("4096"), parse_bytes("2k"), parse_bytes(7)
    (64000000, 1610612736, 4096, 2000, 7)
    """
    subject = f"{argument}=" if argument else ""
    number, unit = _split(str(text), "size", "64MB", operation, subject)
    if unit not in _BYTES_OF:
        raise fail(ValueFault, operation, f"{subject}{text!r} has the unknown unit {unit!r}",
                   "use B, kB, MB, GB, KiB, MiB or GiB")
    return int(_product(str(text), number, _BYTES_OF[unit], operation, subject))


def parse_seconds(text: str | float) -> float:
    """The seconds a time means; no unit is seconds.

    >>> parse_seconds("12.5us"), parse_seconds("2 min"), parse_seconds(3)
    (1.25e-05, 120.0, 3.0)
    """
    number, unit = _split(str(text), "time", "250ms")
    if unit not in _SECONDS_OF:
        raise fail(ValueFault, "units", f"{text!r} has the unknown unit {unit!r}", "use ns, us, ms, s, min or h")
    return float(_product(str(text), number, Decimal(_SECONDS_OF[unit])))


def _number(text: str, number: str, prefix: str, kind: str) -> Decimal:
    """A decimal with the factor of its prefix: ("1.5", "G") is 1500000000."""
    if number.count(".") > 1 or number.startswith("."):
        raise fail(ValueFault, "units", f"{text!r} is not a {kind}", "write a number and a unit, as in 1.5")
    return _product(text, number, Decimal(1000) ** _LARGE.index("k" if prefix.lower() == "k" else prefix.upper()))


def parse_bytes_per_s(text: str) -> float:
    """The bytes per second a bandwidth means; lines are sold in bits, memory in bytes, so the unit must be there.

    >>> parse_bytes_per_s("1000Mbit/s"), parse_bytes_per_s("10 Gbps"), parse_bytes_per_s("40GB/s")
    (125000000.0, 1250000000.0, 40000000000.0)
    """
    match = _BANDWIDTH.fullmatch(str(text))
    if match is None or (match[3] == "b" and match[4].lower() == "/s"):
        raise fail(ValueFault, "units", f"{text!r} is not a bandwidth", "write 10Gbit/s for bits or 1.25GB/s for bytes")
    bits = match[3].lower() == "bit" or match[4].lower() == "ps"
    if bits and match[3] == "B":
        raise fail(ValueFault, "units", f"{text!r} may mean bits or bytes", "write Gbit/s or GB/s")
    return float(_number(str(text), match[1], match[2], "bandwidth") / (8 if bits else 1))


def parse_flops_per_s(text: str) -> float:
    """The operations per second a rate means; a multiply-add is two.

    >>> parse_flops_per_s("1.2 TFLOP/s"), parse_flops_per_s("900GFLOPS")
    (1200000000000.0, 900000000000.0)
    """
    match = _FLOPS.fullmatch(str(text))
    if match is None:
        raise fail(ValueFault, "units", f"{text!r} is not a rate of arithmetic", "write it as 1.2TFLOP/s")
    return float(_number(str(text), match[1], match[2], "rate"))


def format_bits_per_s(bytes_per_s: float) -> str:
    """A bandwidth as lines are sold.

    >>> format_bits_per_s(125e6), format_bits_per_s(1.25e9)
    ('1 Gbit/s', '10 Gbit/s')
    """
    return _scaled(bytes_per_s * 8, "bit/s")

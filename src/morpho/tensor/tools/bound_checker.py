"""A checker of error bounds, which imports nothing of Morpho: `python bound_checker.py CERTIFICATE.json`.

A certificate says: for all inputs in these ranges, each output of this program, computed in its dtypes with the orders
of docs/numerics.md, lies within `error` of its value in real numbers. The checker derives a bound by running error
analysis in rational numbers, rounded outward to 64 bits, and accepts no smaller claim. It assumes what docs/numerics.md
promises of single operations: correct rounding, orders of sums, units in the last place of elementary functions.
"""

import hashlib
import json
import math
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction as Q

FORMAT = "morpho error bound 1"
# Significant bits, exponent of the least subnormal number, largest finite number.
DTYPES = {"float64": (53, -1074, Q(2) ** 1024 - Q(2) ** 971), "float32": (24, -149, Q(2) ** 128 - Q(2) ** 104),
          "float16": (11, -24, Q(65504)), "bfloat16": (8, -133, Q(2) ** 128 - Q(2) ** 120)}
WHOLE = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
_DOWN, _UP = (Context(prec=60, rounding=r, Emin=-10 ** 6, Emax=10 ** 6) for r in (ROUND_FLOOR, ROUND_CEILING))
_TINY = Q(1, 10 ** 50)


class Refused(Exception):
    """Why nothing can be said, or why a claim is not accepted."""


# -- rational numbers, rounded outward --------------------------------------------------------------------------------
def up(x, bits=64):
    """The least multiple of a power of two, of so many bits, that is not below x."""
    if not x:
        return Q(0)
    shift = abs(x.numerator).bit_length() - x.denominator.bit_length() - bits
    return Q(math.ceil(x / Q(2) ** shift)) * Q(2) ** shift


def down(x):
    return -up(-x)


def exp_up(x):
    if x < -2000:
        return Q(2) ** -2800
    if x > 2000:
        raise Refused("an exponential overflows")
    value = _UP.divide(Decimal(x.numerator), Decimal(x.denominator)).exp(_UP)
    return up(Q(value) * (1 + _TINY))


def exp_down(x):
    return Q(0) if x < -2000 else down(1 / exp_up(-x))


def log_up(x):
    value = _UP.divide(Decimal(x.numerator), Decimal(x.denominator)).ln(_UP)
    return up(Q(value) + abs(Q(value)) * _TINY + _TINY)


def log_down(x):
    return -log_up(1 / x)


def sqrt_up(x):
    return up(Q(math.isqrt(math.ceil(x * Q(4) ** 200)) + 1) / Q(2) ** 200) if x else Q(0)


def sqrt_down(x):
    return down(Q(math.isqrt(math.floor(x * Q(4) ** 200))) / Q(2) ** 200)


def unit(dtype):
    return Q(2) ** -DTYPES[dtype][0]


def half_ulp(dtype, size):
    """Largest error of rounding a number of at most this magnitude."""
    if not size:
        return Q(0)
    bits, least, _ = DTYPES[dtype]
    exponent = size.numerator.bit_length() - size.denominator.bit_length() + 1
    while Q(2) ** exponent > size:
        exponent -= 1
    return max(Q(2) ** (exponent - bits), Q(2) ** (least - 1))


def sum_of_half_ulps(dtype, size, first, last, cap=None):
    """The sum of the half units of `min(j size, cap)` for j from first to last, by binades."""
    total, j = Q(0), first
    while j <= last and size:
        at = j * size if cap is None else min(j * size, cap)
        step = half_ulp(dtype, at)
        if cap is not None and j * size >= cap:
            return total + (last - j + 1) * half_ulp(dtype, cap)
        edge = max(step * 2 * Q(2) ** (DTYPES[dtype][0] - 1) * 2, at)  # where the next binade begins
        until = min(last, max(j, math.ceil(edge / size) - 1))
        total += (until - j + 1) * half_ulp(dtype, until * size if cap is None else min(until * size, cap))
        j = until + 1
    return total


def tree(dtype, size, count):
    """Error of a sum of `count` numbers of at most this magnitude: lanes of 64, blocks of 4096, blocks by pairs."""
    block = min(count, 4096)
    lane = -(-block // 64)
    filled, blocks, width = min(64, count), -(-count // 4096), 1
    error = 64 * sum_of_half_ulps(dtype, size, 2, lane)
    for distance in (32, 16, 8, 4, 2, 1):
        terms = min(-(-filled // distance) * lane, block)
        error += max(0, min(filled, 2 * distance) - distance) * half_ulp(dtype, terms * size)
    error *= blocks
    while width < blocks:  # and at the end the latest first, which is no more additions
        width *= 2
        error += (-(-blocks // width) + 1) * half_ulp(dtype, min(width * 4096, count) * size)
    return error


def depth(count):
    """Most additions that one number takes part in, in such a sum."""
    return -(-min(count, 4096) // 64) + 6 + 2 * max(0, (-(-count // 4096) - 1).bit_length())


def powered(rate, times):
    """(1 + rate) ** times and (1 - rate) ** -times, from above."""
    return exp_up(up(times * rate / (1 - rate)))


# -- values -----------------------------------------------------------------------------------------------------------
class Value:
    """Real values lie in [lo, hi], computed ones within `error` of them. `parts` says which operation brought how much
    of the error; `sums` are bounds of sums of magnitudes along an axis."""

    def __init__(self, lo, hi, dtype, shape, parts=None, sums=None):
        self.lo, self.hi, self.dtype, self.shape = down(lo), up(hi), dtype, tuple(shape)
        self.parts, self.sums = {k: up(v) for k, v in (parts or {}).items() if v}, sums or {}

    @property
    def error(self):
        return sum(self.parts.values(), Q(0))

    @property
    def size(self):
        return max(abs(self.lo), abs(self.hi))

    @property
    def low(self):  # of computed values, as `high` and `reach`
        return self.lo - self.error

    @property
    def high(self):
        return self.hi + self.error

    @property
    def reach(self):
        return self.size + self.error


def need_exact(name, *values):
    if any(value.error for value in values):
        raise Refused(f"{name} takes a computed value, and an error there may change the result by any amount")


class Program:
    """The derivation of a program's values."""

    def __init__(self, nodes, inputs):
        self.nodes, self.inputs, self.values = nodes, inputs, []
        for number, node in enumerate(nodes):
            given = [self.values[i] for i in node["inputs"]]
            try:
                value = self.derive(number, node, given)
                if value.dtype in DTYPES and value.reach > DTYPES[value.dtype][2]:
                    raise Refused(f"its result may overflow {value.dtype}")
            except Refused as reason:
                raise Refused(f"operation {number} ({node['op']}): {reason}") from None
            except (ZeroDivisionError, KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
                raise Refused(f"operation {number} ({node['op']}) is not understood: "
                              f"{type(error).__name__} {error}") from None
            self.values.append(value)

    def derive(self, number, node, given):
        name = node["op"]
        if name == "parameter":
            return self.parameter(node)
        if name == "constant":
            value = number_of(node["attributes"]["value"])
            return Value(value, value, node["dtype"], node["shape"])
        if name == "iota":
            return Value(Q(0), Q(max(node["shape"][node["attributes"]["axis"]] - 1, 0)), node["dtype"], node["shape"])
        rule = RULES.get(name)
        need(rule is not None, "no rule is known for it")
        need(node["dtype"] in DTYPES or (node["dtype"] in WHOLE and rule in OF_WHOLE), f"{node['dtype']} has no rule")
        lo, hi, gains, local, sums = rule(node, *given)
        parts = {}
        for value, gain in zip(given, gains):
            for key, part in value.parts.items():
                parts[key] = parts.get(key, Q(0)) + part * gain
        parts[number] = parts.get(number, Q(0)) + local
        return Value(lo, hi, node["dtype"], node["shape"], parts, sums)

    def parameter(self, node):
        given = self.inputs[str(node["attributes"]["index"])]
        lo, hi = map(number_of, given["range"])
        if lo > hi:
            raise Refused("its range is empty")
        return Value(lo, hi, node["dtype"], node["shape"],
                     sums={int(axis): number_of(s) for axis, s in given.get("sums", {}).items()})


def number_of(text):
    """A number as `float.hex` or a whole number writes it."""
    value = float.fromhex(text) if isinstance(text, str) else text
    if not math.isfinite(value):
        raise Refused(f"{text} is not finite")
    return Q(value)


# -- rules: (node, values) -> least, most, factor of each input's error, error of its own, sums ------------------------
def moved(node, *values):
    """Operations that move elements, or choose among them."""
    worst = max(range(len(values)), key=lambda i: values[i].error)
    return (min(v.lo for v in values), max(v.hi for v in values), [Q(i == worst) for i in range(len(values))], Q(0), {})


def one_moved(node, value, *indices):
    need_exact(node["op"], *indices)
    need(node["attributes"].get("index", 0) == 0, "only the first of several results has a rule")
    return value.lo, value.hi, [Q(1)] + [Q(0)] * len(indices), Q(0), {}


def permuted(node, value):
    axes = node["attributes"]["axes"]
    sums = {axes.index(axis): bound for axis, bound in value.sums.items()}
    return value.lo, value.hi, [Q(1)], Q(0), sums


def padded(node, value):
    fill = number_of(node["attributes"]["value"])
    return min(value.lo, fill), max(value.hi, fill), [Q(1)], Q(0), {}


def rounded(dtype, size, ulps=0):
    """Error of a result of this magnitude: correctly rounded, or within so many units in the last place."""
    if not ulps:
        return half_ulp(dtype, size)
    ulps = 2 if dtype == "float64" else ulps
    if dtype in ("float16", "bfloat16"):  # computed in float32, then rounded
        first = 2 * ulps * half_ulp("float32", size)
        return first + half_ulp(dtype, size + first)
    return 2 * ulps * half_ulp(dtype, size)


def function(image, slope, ulps):
    """A smooth function: its range over an interval, and the most of its slope there, or anywhere."""
    def rule(node, x):
        steep = slope if isinstance(slope, Q) else up(slope(x.low, x.high))  # first: it may refuse
        lo, hi = image(x.lo, x.hi)
        size = max(abs(lo), abs(hi)) + steep * x.error
        return lo, hi, [steep], rounded(node["dtype"], size, ulps), {}
    return rule


def need(true, reason):
    if not true:
        raise Refused(reason)


def product_range(a, b):
    corners = [a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi]
    return min(corners), max(corners)


def is_power(value):
    whole, part = abs(value.lo.numerator), value.lo.denominator
    return value.lo == value.hi and whole and not (value.error or whole & (whole - 1) or part & (part - 1))


def multiplied(node, a, b):
    lo, hi = (Q(0), a.size ** 2) if node["inputs"][0] == node["inputs"][1] else product_range(a, b)
    size = a.reach * b.reach
    local = Q(2) ** (DTYPES[node["dtype"]][1] - 1) if is_power(a) or is_power(b) else half_ulp(node["dtype"], size)
    return lo, hi, [b.reach, a.size], local if size else Q(0), {}


def squared(node, a):
    least = Q(0) if a.lo <= 0 <= a.hi else min(a.lo ** 2, a.hi ** 2)
    return least, a.size ** 2, [a.reach + a.size], half_ulp(node["dtype"], a.reach ** 2), {}


def added(sign):
    def rule(node, a, b):
        lo, hi = (a.lo + b.lo, a.hi + b.hi) if sign > 0 else (a.lo - b.hi, a.hi - b.lo)
        nothing = not a.reach or not b.reach
        size = max(abs(lo), abs(hi)) + a.error + b.error
        return lo, hi, [Q(1), Q(1)], Q(0) if nothing else half_ulp(node["dtype"], size), {}
    return rule


def divided(node, a, b):
    need(b.low > 0 or b.high < 0, "the divisor may be 0")
    least, real = min(abs(b.low), abs(b.high)), min(abs(b.lo), abs(b.hi))
    inverse = Value(1 / b.hi, 1 / b.lo, b.dtype, ())
    lo, hi = product_range(a, inverse)
    exact = is_power(b)
    local = Q(2) ** (DTYPES[node["dtype"]][1] - 1) if exact else half_ulp(node["dtype"], up(a.reach / least))
    return lo, hi, [1 / least, a.size / (real * least)], local, {}


def reciprocal(node, b):
    lo, hi, gains, local, sums = divided(node, Value(Q(1), Q(1), b.dtype, ()), b)
    return lo, hi, gains[1:], local, sums


def root(node, x):
    need(x.low >= 0, "its argument may be negative")
    gain = 1 / (sqrt_down(x.lo) + sqrt_down(x.low)) if x.low else (sqrt_up(x.error) / x.error if x.error else Q(0))
    return sqrt_down(x.lo), sqrt_up(x.hi), [gain], half_ulp(node["dtype"], sqrt_up(x.high)), {}


def absolute(node, x):
    return Q(0) if x.lo <= 0 <= x.hi else min(abs(x.lo), abs(x.hi)), x.size, [Q(1)], Q(0), x.sums


def extreme(choose):
    def rule(node, a, b):
        _, _, gains, _, _ = moved(node, a, b)
        return choose(a.lo, b.lo), choose(a.hi, b.hi), gains, Q(0), {}
    return rule


def compared(node, *values):
    need_exact(node["op"], *values)
    return Q(0), Q(1), [Q(0)] * len(values), Q(0), {}


def chosen(node, condition, a, b):
    need_exact(node["op"], condition)
    lo, hi, gains, _, _ = moved(node, a, b)
    return lo, hi, [Q(0), *gains], Q(0), {}


def converted(node, x):
    target = node["dtype"]
    if target not in DTYPES:
        need_exact("a conversion to whole numbers", x)
        return min(x.lo, Q(0)), max(x.hi, Q(1)), [Q(0)], Q(0), {}
    wider = x.dtype in DTYPES and DTYPES[x.dtype][0] <= DTYPES[target][0] and DTYPES[x.dtype][1] >= DTYPES[target][1]
    if wider or x.dtype == "bool":
        return x.lo, x.hi, [Q(1)], Q(0), x.sums
    local = half_ulp(target, x.reach)
    if x.dtype == "float64" and target in ("float16", "bfloat16"):  # through float32
        local += half_ulp("float32", x.reach) * 2
    return x.lo, x.hi, [Q(1)], local, {}


def wide(dtype):
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def ending(dtype, size, error):
    """The error after a half float's one rounding at the end."""
    return error + half_ulp(dtype, size + error) if dtype in ("float16", "bfloat16") else error


def reduced_count(node, x):
    return math.prod(x.shape[axis] for axis in node["attributes"]["axes"])


def summed(node, x):
    count, kind = reduced_count(node, x), wide(node["dtype"])
    need(kind in DTYPES, "a sum of whole numbers may wrap")
    peak(kind, count * x.reach)
    local = ending(node["dtype"], count * x.reach, tree(kind, x.reach, count))
    return count * x.lo, count * x.hi, [Q(count)], local, {}


def peak(dtype, size):
    need(size <= DTYPES[dtype][2], f"a partial sum may overflow {dtype}")


def accumulated(node, x):
    count, kind = x.shape[node["attributes"]["axis"]], wide(node["dtype"])
    peak(kind, count * x.reach)
    local = ending(node["dtype"], count * x.reach, sum_of_half_ulps(kind, x.reach, 2, count))
    return min(x.lo, count * x.lo), max(x.hi, count * x.hi), [Q(count)], local, {}


def matmul(node, a, b):
    count, dtype = a.shape[-1], node["dtype"]
    need(dtype in DTYPES and dtype == a.dtype == b.dtype, f"a product of {a.dtype} and {b.dtype}")
    lo, hi = (count * each for each in product_range(a, b))
    one = a.reach * b.reach
    rows, columns = a.sums.get(len(a.shape) - 1), b.sums.get(max(len(b.shape) - 2, 0))
    caps = [limit * other.reach for limit, other in ((rows, b), (columns, a)) if limit is not None]
    cap = min([*caps, count * one])
    kind = wide(dtype)
    peak(kind, cap)
    if dtype == "bfloat16":  # blocks of 32: two chains, their sum, and the accumulator; subnormal numbers are zero
        blocks = -(-count // 32)
        local = blocks * (2 * sum_of_half_ulps(kind, one, 2, min(16, count)) + half_ulp(kind, min(32, count) * one))
        local += sum_of_half_ulps(kind, 32 * one, 1, blocks) + 4 * count * Q(2) ** -126
    else:
        local = sum_of_half_ulps(kind, one, 1, count, cap)
    local = ending(dtype, cap, local)
    lo, hi = max(lo, -cap), min(hi, cap)
    along_a = columns if columns is not None else count * b.reach
    along_b = rows if rows is not None else count * a.size
    return lo, hi, [along_a if not b.error else count * b.reach, along_b], local, {}


def shares(kind, spread, count, most=Q(1)):
    """Errors of a row's exponentials, for arguments down to -spread: relative, of a share of at most `most`, and
    relative of their sum. Arguments far down have larger errors and weigh little."""
    u = unit(kind)
    bottom = Q(DTYPES[kind][1] + DTYPES[kind][0])
    need(spread < -bottom * Q(69, 100), f"exponentials of {kind} vanish where scores lie {float(spread):.3g} apart")
    function, slack = powered(4 * u if kind == "float64" else 2 * u, 1), 1 + half_ulp(kind, spread)
    power = up(exp_up(half_ulp(kind, spread)) * function) - 1
    edges = [Q(0), *(Q(2) ** e for e in range(-8, 8) if Q(2) ** e < spread)]
    tops = [*edges[1:], spread]
    one, row = (max(half_ulp(kind, top) * slack * min(cap, many * exp_up(-edge)) for edge, top in zip(edges, tops))
                for cap, many in ((most, 1), (1, count)))
    return power, up(one * function + most * (function - 1)), up((1 + row) * function * powered(u, depth(count))) - 1


def softmax(node, x):
    count, kind = reduced_count(node, x), wide(node["dtype"])
    need(kind in DTYPES, "its dtype is no float")
    spread, real = x.high - x.low, x.hi - x.lo
    most = up(1 / (1 + (count - 1) * exp_down(-spread)))
    _, one, total = shares(kind, spread, count, most)
    need(total < Q(1, 4), "its errors are too large")
    factor = powered(unit(kind), 2) / (1 - total)  # of the sum, the division and the product
    local = ending(node["dtype"], most, one * factor + most * (factor - 1) + 2 * Q(2) ** DTYPES[kind][1])
    change = min(most * (exp_up(2 * x.error) - 1), (exp_up(x.error) - 1) / 2)
    ends = (1 / (1 + (count - 1) * edge) for edge in (exp_up(real), exp_down(-real)))
    return *ends, [change / x.error if x.error else Q(0)], local, {}


def log_of_sum(kind, spread, count):
    """Error of the logarithm of a row's sum, and the most of it."""
    _, _, total = shares(kind, spread, count)
    need(total < Q(1, 4), "its errors are too large")
    most = log_up(Q(count)) + 2 * total
    return up(total / (1 - total)) + rounded(kind, most, 1), most


def log_softmax(node, x):
    count, kind = reduced_count(node, x), wide(node["dtype"])
    spread, real = x.high - x.low, x.hi - x.lo
    error, most = log_of_sum(kind, spread, count)
    local = half_ulp(kind, spread) + error
    local = ending(node["dtype"], spread + most, local + half_ulp(kind, spread + most + local))
    return (-log_up(1 + (count - 1) * exp_up(real)), -log_down(1 + (count - 1) * exp_down(-real)), [Q(2)], local, {})


def logsumexp(node, x):
    count, kind = reduced_count(node, x), wide(node["dtype"])
    error, most = log_of_sum(kind, x.high - x.low, count)
    local = ending(node["dtype"], x.reach + most, error + half_ulp(kind, x.reach + most + error))
    return x.lo + log_down(Q(count)), x.hi + log_up(Q(count)), [Q(1)], local, {}


def norm(centred):
    def rule(node, x, *affine):
        count, kind, eps = reduced_count(node, x), wide(node["dtype"]), number_of(node["attributes"]["eps"])
        need(eps >= Q(10) ** -30, "eps is 0 or nearly so: a row of equal numbers would be divided by 0")
        u = unit(kind)
        peak(kind, count * x.reach ** 2 * 4)
        spread = x.high - x.low
        if centred:
            shift = tree(kind, x.reach, count) / count
            shift += half_ulp(kind, x.reach + shift)
            variance, largest = Q(0), spread
        else:
            shift, largest = Q(0), x.reach
            variance = Q(0) if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high)) ** 2
        least = sqrt_down(variance + eps)
        most = min(sqrt_up(Q(count - 1 if centred else count)), up(largest / least))  # of |normalised x|
        theta = powered(u, depth(count) + (5 if centred else 3)) + Q(2) ** DTYPES[kind][1] / eps
        grown = up(sqrt_up(theta * (1 + (shift / least) ** 2)) * powered(u, 4))
        error = up(most * (grown - 1) + shift / least * grown) + Q(2) ** (DTYPES[kind][1] + 2)
        gains, lo, hi = [(most + (2 if centred else 1)) / least], -most, most
        if count == 1 and centred:
            lo = hi = Q(0)
        for place, other in enumerate(affine):
            if place == 0:
                size = max(abs(lo), abs(hi)) + error
                error = error * other.reach + half_ulp(kind, size * other.reach)
                gains = [gains[0] * other.reach, max(abs(lo), abs(hi))]
                wide_most = max(abs(lo), abs(hi)) * other.size
                lo, hi = -wide_most, wide_most
            else:
                lo, hi = lo + other.lo, hi + other.hi
                error += half_ulp(kind, max(abs(lo), abs(hi)) + error + other.error)
                gains.append(Q(1))
        return lo, hi, gains, ending(node["dtype"], max(abs(lo), abs(hi)), error), {}
    return rule


def attention(node, q, k, v, *masks):
    attributes, kind = node["attributes"], wide(node["dtype"])
    need(node["dtype"] != "bfloat16", "attention of bfloat16 has no rule (its exponentials have fewer terms)")
    need(not attributes["moving"], "attention with offsets as data has no rule")
    for mask in masks:
        need(mask.dtype == "bool", "attention with a mask of numbers has no rule")
        need_exact("a mask", mask)
    depth_, keys, u = q.shape[-1], k.shape[-2], unit(kind)
    blocks, scale = -(-keys // 64), abs(number_of(attributes["scale"]))
    one = q.reach * scale * (1 + u) ** 2 * k.reach
    peak(kind, depth_ * one)
    own = depth_ * q.reach * scale * k.reach * ((1 + u) ** 2 - 1) + sum_of_half_ulps(kind, one, 1, depth_)
    own += depth_ * k.reach * Q(2) ** DTYPES[kind][1]
    from_q, from_k = depth_ * scale * k.reach * q.error, depth_ * scale * q.size * k.error
    scores = sorted(depth_ * scale * each for each in product_range(q, k))
    spread = scores[1] - scores[0] + 2 * (own + from_q + from_k)
    power, _, _ = shares(kind, spread, 64)

    def moved_by(delta):  # the sum of |changes| of the weights, where scores change by delta and exponentials round
        return exp_up(delta) * powered(power, blocks) - 1
    middle = (v.high - v.low) / 2
    partial = attributes["causal"] or masks
    share = Q(1) if partial else up(1 / (1 + (keys - 1) * exp_down(-spread)))
    until = min(keys, math.floor(1 / share))
    chain = u * (share * until * (until + 1) / 2 + keys - until) + 2 * blocks * u
    rounding = v.reach * up((1 + chain + keys ** 2 * u ** 2 * 4) * powered(u, 8 + 2 * blocks) - 1)
    local = rounding * (1 + moved_by(own)) + middle * moved_by(own) + keys * Q(2) ** DTYPES[kind][1]
    local = ending(node["dtype"], v.reach, local)
    more = middle * (moved_by(own + from_q + from_k) - moved_by(own)) * (1 + 2 * keys * u)
    parts = from_q + from_k
    gains = [more * from_q / parts / q.error if from_q else Q(0), more * from_k / parts / k.error if from_k else Q(0),
             1 + 4 * keys * u]
    lo, hi = (min(v.lo, Q(0)), max(v.hi, Q(0))) if partial else (v.lo, v.hi)
    return lo, hi, gains + [Q(0)] * len(masks), local, {}


def logistic(x, toward):
    return 1 / (1 + (exp_down if toward is up else exp_up)(-x))


def hyperbolic(x, toward):
    return 2 * logistic(2 * x, toward) - 1


def bent(dip, fall):
    """Range of gelu and its kin: below 0 down to the dip, and x at most from there on."""
    return lambda lo, hi: (Q(0) if lo >= 0 else max(-Q(dip), lo * fall), max(hi, Q(0)))


def both(low, high):
    return lambda lo, hi: (low(lo), high(hi))


def bounded(factor, ulps):
    def image(lo, hi):
        most = min(Q(1), factor * max(abs(lo), abs(hi)))
        return -most, most
    return function(image, factor, ulps)


def logarithm(factor, shift=0):
    def slope(lo, hi):
        need(lo + shift > 0, "its argument may not be positive")
        return max(factor) / (lo + shift)
    return function(both(lambda x: min(f * log_down(x + shift) for f in factor),
                         lambda x: max(f * log_up(x + shift) for f in factor)), slope, 1 if factor == (1,) else 2)


OF_WHOLE = (moved, one_moved, permuted, compared, chosen, converted)
LOG2 = (Q(14426950408889634, 10 ** 16), Q(14426950408889635, 10 ** 16))  # 1 / ln 2
LOG10 = (Q(4342944819032518, 10 ** 16), Q(4342944819032519, 10 ** 16))
RULES = {
    **dict.fromkeys(("reshape", "expand", "slice", "copy", "detach", "mark", "remat_barrier", "checkpoint", "pick",
                     "window", "max", "min", "gather"), one_moved),
    "permute": permuted, "concatenate": moved, "pad": padded,
    "negative": lambda node, x: (-x.hi, -x.lo, [Q(1)], Q(0), x.sums),
    "absolute": absolute, "square": squared, "sqrt": root, "reciprocal": reciprocal,
    "add": added(1), "subtract": added(-1), "multiply": multiplied, "divide": divided, "cast": converted,
    "where": chosen, "maximum": extreme(max), "minimum": extreme(min), "sum": summed, "cumulative_sum": accumulated,
    "matmul": matmul,
    **dict.fromkeys(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isnan", "isinf",
                     "isfinite", "logical_and", "logical_or", "logical_not", "signbit"), compared),
    "exp": function(both(exp_down, exp_up), lambda lo, hi: exp_up(hi), 1),
    "exp2": function(both(lambda x: exp_down(x * Q(693147180559945309, 10 ** 18) - abs(x) / Q(10) ** 17),
                          lambda x: exp_up(x * Q(693147180559945309, 10 ** 18) + abs(x) / Q(10) ** 17)),
                     lambda lo, hi: exp_up(hi * Q(693147180559945309, 10 ** 18) + abs(hi) / Q(10) ** 17) * Q(7, 10), 2),
    "expm1": function(both(lambda x: exp_down(x) - 1, lambda x: exp_up(x) - 1), lambda lo, hi: exp_up(hi), 2),
    "log": logarithm((1,)), "log1p": logarithm((Q(1),) * 2, 1), "log2": logarithm(LOG2), "log10": logarithm(LOG10),
    "sin": bounded(Q(1), 2), "cos": function(lambda lo, hi: (Q(-1), Q(1)), Q(1), 2), "erf": bounded(Q(113, 100), 1),
    "tanh": function(both(lambda x: hyperbolic(x, down), lambda x: hyperbolic(x, up)), Q(1), 1),
    "sigmoid": function(both(lambda x: logistic(x, down), lambda x: logistic(x, up)), Q(1, 4), 1),
    "softplus": function(both(lambda x: log_down(1 + exp_down(x)), lambda x: log_up(1 + exp_up(x))), Q(1), 2),
    "gelu": function(bent(Q(17, 100), Q(1, 2)), Q(113, 100), 2),
    "gelu_tanh": function(bent(Q(171, 1000), Q(1, 2)), Q(1131, 1000), 2),
    "silu": function(bent(Q(2785, 10000), Q(1, 2)), Q(11, 10), 2),
    "mish": function(bent(Q(309, 1000), Q(1)), Q(109, 100), 2),
    "softmax": softmax, "log_softmax": log_softmax, "logsumexp": logsumexp, "layer_norm": norm(True),
    "rms_norm": norm(False), "attention": attention,
}


# -- certificates -----------------------------------------------------------------------------------------------------
def program_hash(certificate):
    """SHA-256 of everything but the claims."""
    parts = {name: certificate[name] for name in ("format", "graph", "program", "inputs", "outputs")}
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def check(certificate, expected_hash=None):
    """Raise `Refused` unless every claim of a certificate follows from its program and its ranges."""
    try:
        if certificate["format"] != FORMAT:
            raise Refused(f"the format is not {FORMAT!r}")
        digest = program_hash(certificate)
        if certificate["hash"] != digest or expected_hash not in (None, digest):
            raise Refused("the hash does not fit the program")
        values = Program(certificate["program"], certificate["inputs"]).values
        if len(certificate["outputs"]) != len(certificate["bounds"]) or not certificate["outputs"]:
            raise Refused("there is not one claim for each output")
        for place, claim in zip(certificate["outputs"], certificate["bounds"]):
            value = values[place]
            lo, hi = map(number_of, claim["range"])
            if lo > value.lo or hi < value.hi:
                raise Refused(f"the range claimed for operation {place} does not follow")
            if number_of(claim["error"]) < value.error:
                raise Refused(f"the error claimed for operation {place} is smaller than what follows, "
                              f"{float(value.error):.6g}")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise Refused(f"the certificate cannot be read: {type(error).__name__} {error}") from None


if __name__ == "__main__":
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            check(json.load(file))
    except (Refused, OSError, ValueError) as refusal:
        sys.exit(f"refused: {refusal}")
    print("accepted")

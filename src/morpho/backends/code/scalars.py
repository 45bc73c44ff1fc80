"""How dtypes live in registers, and conversions between them.

A bool is a bit in a register and a byte in memory. Half floats are float32 in registers and round to their own
precision after every operation; bfloat16 is rounded by integer arithmetic, so no machine needs a library call for it.
"""

from __future__ import annotations

from morpho.backends.code.emit import BITS, Emitter, Value
from morpho.base.dtypes import DType, bfloat16, bool_, float16
from morpho.ops.neural.float8 import Float8


def register_type(dtype: DType) -> str:
    """The LLVM element type a value of this dtype has while it is computed with."""
    if dtype is bool_:
        return "i1"
    return "float" if dtype in (float16, bfloat16) else dtype.llvm


def memory_type(dtype: DType) -> str:
    """The LLVM element type in memory."""
    return "i16" if dtype is bfloat16 else dtype.llvm


def _to_bfloat16(e: Emitter, x: Value) -> Value:
    """A float32 rounded to bfloat16, its upper half, ties to even; NaN stays NaN. The lower half is masked, not shifted
    out and in again: only one of a Neoverse's vector units shifts."""
    bits = e.bits(x)
    rounded = bits + 0x7FFF + (bits.shift_right(16) & 1)
    return e.from_bits(e.select(e.is_nan(x), 0x7FC00000, rounded) & -(1 << 16), "float")


def _half_bits(e: Emitter, x: Value) -> Value:
    """The 16 bits of a float32 rounded to float16, ties to even, by integer arithmetic."""
    bits = e.bits(x)
    magnitude = bits & 0x7FFFFFFF
    normal = (magnitude + 0xFFF + (magnitude.shift_right(13) & 1) - 0x38000000).shift_right(13)
    # Adding 0.5 rounds a small number to a multiple of 2**-24, the least float16, in the low bits of the sum.
    small = e.bits(e.from_bits(magnitude, "float") + 0.5) - 0x3F000000
    found = e.select(e.icmp("ult", magnitude, 0x38800000), small, normal)
    found = e.select(e.icmp("uge", magnitude, 0x47800000), 0x7C00, found)
    found = e.select(e.icmp("ugt", magnitude, 0x7F800000), 0x7E00, found)
    return e.convert("trunc", found | (bits.shift_right(16) & 0x8000), "i16")


def _half_to_float(e: Emitter, bits: Value) -> Value:
    """The float32 behind 16 bits of float16: exponent moved by an exact product, infinities and NaN apart."""
    wide = e.convert("zext", bits, "i32")
    magnitude = (wide & 0x7FFF) << 13
    scaled = e.bits(e.from_bits(magnitude, "float") * 2.0**112)
    found = e.select(e.icmp("uge", magnitude, 0x0F800000), magnitude | 0x7F800000, scaled)
    return e.from_bits(found | ((wide & 0x8000) << 16), "float")


def from_float8(e: Emitter, codes: Value, form: Float8) -> Value:
    """The float32 behind bytes of a float of 8 bits, as `_half_to_float` has it; the form is no "fnuz" one."""
    wide = e.convert("zext", codes, "i32")
    moved = 23 - form.bits
    magnitude = (wide & 0x7F) << moved
    scaled = e.bits(e.from_bits(magnitude, "float") * 2.0**(127 - form.bias))
    ends = 0x7F if form.ends == "fn" else 0x7F & -(1 << form.bits)  # the first code that is no number
    found = e.select(e.icmp("uge", magnitude, ends << moved), magnitude | 0x7F800000, scaled)
    return e.from_bits(found | ((wide & 0x80) << 24), "float")


def from_book(e: Emitter, codes: Value, book: tuple[int, ...], lookups: str = "") -> Value:
    """The float32 numbers that a codebook of 16 whole numbers has at `codes`, integers of 32 bits below 16. `lookups`
    names instructions that pick floats of a register (`Isa.lookups`): elsewhere a number is a byte of one of four
    constants, moved to the top and back."""
    if book == tuple(range(book[0], book[0] + 16)):
        return e.convert("sitofp", codes + book[0], "float")
    if lookups == "avx512" and codes.lanes == 16:
        table = "<" + ", ".join(f"float {number}.0" for number in book) + ">"
        kind, numbers, name = "<16 x float>", "<16 x i32>", "@llvm.x86.avx512.permvar.sf.512"
        e.declarations.add(f"declare {kind} {name}({kind}, {numbers})")
        return e.assign(f"call {kind} {name}({kind} {table}, {numbers} {codes.name})", "float", 16)
    words = [int.from_bytes(bytes(number & 255 for number in book[at:at + 4]), "little") for at in range(0, 16, 4)]
    low, high = (e.select(e.icmp("ne", codes & 4, 0), e.like(_signed(two), codes), e.like(_signed(one), codes))
                 for one, two in (words[:2], words[2:]))
    word = e.select(e.icmp("ne", codes & 8, 0), high, low)
    return e.convert("sitofp", (word << ((codes & 3 ^ 3) << 3)).shift_right(24, True), "float")


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def from_memory(e: Emitter, x: Value, dtype: DType) -> Value:
    """A loaded value as it lives in a register."""
    if dtype is bool_:
        return e.icmp("ne", x, 0)
    if dtype is float16:
        return e.convert("fpext", x, "float") if e.native_half else _half_to_float(e, e.bits(x))
    if dtype is bfloat16:
        return e.from_bits(e.convert("zext", x, "i32") << 16, "float")
    return x


def to_memory(e: Emitter, x: Value, dtype: DType) -> Value:
    """A register value as it is stored; half floats must be rounded already, so nothing is lost here."""
    if dtype is bool_:
        return e.convert("zext", x, "i8")
    if dtype is float16:
        return e.convert("fptrunc", x, "half") if e.native_half else e.from_bits(_half_bits(e, x), "half")
    if dtype is bfloat16:
        return e.convert("trunc", e.bits(x).shift_right(16), "i16")
    return x


def round_to(e: Emitter, x: Value, dtype: DType) -> Value:
    """The rounding point of an operation whose result has this dtype."""
    own = e.round_half(x, dtype is bfloat16) if dtype in (float16, bfloat16) else None
    if own is not None:
        return own
    if dtype is float16:
        if not e.native_half:
            return _half_to_float(e, _half_bits(e, x))
        return e.convert("fpext", e.convert("fptrunc", x, "half"), "float")
    if dtype is bfloat16:
        return _to_bfloat16(e, x)
    return x


def cast(e: Emitter, x: Value, source: DType, target: DType) -> Value:
    """Convert between dtypes: float to integer truncates and saturates (NaN is 0), integers wrap."""
    register = register_type(target)
    if source is target:
        return x
    if target is bool_:
        return e.fcmp("une", x, 0.0) if x.is_float else e.icmp("ne", x, 0)
    if target.is_float:
        return round_to(e, _to_float(e, x, source, register), target)
    if x.is_float:
        name = "fptosi.sat" if target.kind == "i" else "fptoui.sat"
        return _saturating(e, name, x, register)
    if BITS[x.element] > BITS[register]:
        return e.convert("trunc", x, register)
    return e.convert("sext" if source.kind == "i" else "zext", x, register)


def _to_float(e: Emitter, x: Value, source: DType, register: str) -> Value:
    if x.is_float:
        wider = BITS[register] > BITS[x.element]
        return e.convert("fpext" if wider else "fptrunc", x, register)
    return e.convert("sitofp" if source.kind == "i" else "uitofp", x, register)


def _saturating(e: Emitter, name: str, x: Value, register: str) -> Value:
    """LLVM's saturating conversion; of several lanes to 32 bits and more in plain steps, because LLVM takes it apart
    into one conversion for each lane."""
    from morpho.backends.code.emit import mangled

    bits, signed = BITS[register], name == "fptosi.sat"
    if x.lanes > 1 and bits < 32 <= BITS[x.element]:  # what 32 bits saturate at lies outside of fewer as well
        least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        wide = _saturating(e, "fptosi.sat", x, "i32")
        inside = e.intrinsic("smin", e.intrinsic("smax", wide, e.like(least, wide)), e.like(most, wide))
        return e.convert("trunc", inside, register)
    if x.lanes == 1 or BITS[x.element] < 32:
        suffix = f"{mangled(register, x.lanes)}.{mangled(x.element, x.lanes)}"
        return e.intrinsic(name, x, element=register, suffix=suffix)
    above = e.fcmp("oge", x, 2.0 ** (bits - signed))
    below = e.fcmp("olt", x, -2.0 ** (bits - 1)) if signed else e.fcmp("olt", x, 0.0)
    outside = above | below | e.fcmp("uno", x, x)
    inside = e.select(outside, e.constant(0.0, x.element, x.lanes), x)
    whole = e.convert(name.removesuffix(".sat"), inside, register)
    largest, least = (1 << (bits - signed)) - 1, -(1 << (bits - 1)) if signed else 0
    whole = e.select(above, e.constant(largest, register, x.lanes), whole)
    return e.select(below, e.constant(least, register, x.lanes), whole)

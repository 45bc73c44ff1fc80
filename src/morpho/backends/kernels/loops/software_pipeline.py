"""Software pipelining: a long loop body in two stages, so that one iteration finishes a chunk and begins the next.

A core with a small reorder window cannot overlap one chunk of a long function with the next, and waits for the
dependency chain inside each. With the second half of one chunk beside the first half of the next, each chain is half as
long. The instructions and their rounding stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Emitter, Value
from morpho.backends.code.vector_math import has_branches
from morpho.backends.kernels.loops.loop_spec import TREE_LANES, Pass
from morpho.backends.kernels.loops.reduction_tree import Tree
from morpho.backends.kernels.loops.values import LoopState, copy_all, kept_element, side_by_side, store_kept

LEAST_LATENCY = 30  # cycles of a chain that is worth cutting
MOST_CROSSING = 9  # values carried to the next iteration: more leave too few registers
REGISTER_BITS = 128
MOST_HELD = 30  # registers for carried values and constants, of 32
MIDDLE = 0.4, 0.7  # of a chain, where a cut may lie
_NAME = re.compile(r"(%[a-z]+\d+)")
_DIVISION = re.compile(r" = [su](div|rem) ")
_CONSTANT = re.compile(r"splat \((float|double) 0x(?!0{16})\w+\)")  # comparing with zero needs no register
_LATENCY = (("fdiv", 10), ("@llvm.sqrt", 12), ("@llvm.fma", 4), ("fmul", 3), ("ptr @of", 0), ("load", 5),
            ("bitcast", 0))


class BodyInstruction:
    """One instruction of a straight body: what it defines, what it uses, and when its result is there.

    Sets of lines are numbers with a bit for each, which are quick to join and to compare.
    """

    __slots__ = ("bit", "cycles", "depth", "is_at_hand", "is_operand", "name", "parts", "slots", "users", "uses")

    def __init__(self, text: str, known: dict[str, BodyInstruction]) -> None:
        self.parts, self.bit = _NAME.split(text), 1 << len(known)  # every second part is a name
        assert self.parts[2].startswith(" = "), "a line of a straight body defines something"
        self.name = self.parts[1]
        self.uses = [known[name] for name in dict.fromkeys(self.parts[3::2]) if name in known]
        self.cycles = 2
        for word, cycles in _LATENCY:
            if word in text:
                self.cycles = cycles
                break
        self.slots = 0 if self.cycles == 0 or "load" in text else 5 if "fdiv" in text else 1  # of arithmetic units
        self.users, self.depth = 0, self.cycles
        self.is_operand, self.is_at_hand = "%place" in text, True
        for line in self.uses:
            line.users |= self.bit
            if line.depth + self.cycles > self.depth:
                self.depth = line.depth + self.cycles
            self.is_at_hand &= line.is_at_hand and not line.is_operand
        self.is_at_hand |= self.is_operand  # it can be had again: an operand of the kernel, or made of constants

    def renamed(self, names: dict[str, str]) -> str:
        parts = self.parts.copy()
        parts[1::2] = [names.get(name, name) for name in parts[1::2]]
        return "".join(parts)


def parse(texts: list[str], results: set[str]) -> list[BodyInstruction]:
    """The instructions of a straight body in order; those named in `results` have a user outside."""
    known: dict[str, BodyInstruction] = {}
    for text in texts:
        line = BodyInstruction(text, known)
        known[line.name] = line
    for name in results & known.keys():
        known[name].users |= 1 << len(texts)
    return list(known.values())


class Cut:
    """A body in two halves and the names of the values that cross from the first to the second."""

    def __init__(self, lines: list[BodyInstruction], depth: int) -> None:
        late = 1 << len(lines)  # the user outside
        for line in lines:
            if line.depth > depth:
                late |= line.bit
        for line in reversed(lines):  # a value with late users only goes to them unless more values would cross
            if not (line.bit & late or line.users & ~late):
                brought = [use for use in line.uses if not (use.users & late or use.is_at_hand)]
                if len(brought) <= 1:
                    late |= line.bit
        self.lines, self.late = lines, late
        self.early = [line for line in lines if not line.bit & late]
        self.crossing = [line.name for line in self.early if line.users & late and not line.is_at_hand]

    def divide(self) -> None:
        """Find what each half has to compute: what is at hand is had by each that needs it, with all it is made of."""
        first, second = sum(line.bit for line in self.early if not line.is_at_hand), self.late
        for line in reversed(self.early):
            if line.is_at_hand:
                first |= line.bit if line.users & first else 0
                second |= line.bit if line.users & second else 0
        self.first = [line for line in self.early if line.bit & first]
        self.second = [line for line in self.lines if line.bit & second]
        self.again = [line for line in self.early if line.bit & second]

    def cost(self, busy: int) -> float:
        """Cycles of the longer chain, or of the units if they are `busy` longer, and something for every value
        carried."""
        chain, depths = max((line.depth for line in self.first), default=0), {0: 0}
        for line in self.second:
            depth = 0
            for use in line.uses:
                if depths.get(use.bit, 0) > depth:
                    depth = depths[use.bit]
            depths[line.bit] = depth + line.cycles
        return max(chain, busy, *depths.values()) + 1.5 * len(self.crossing)


def longest_chain(lines: list[BodyInstruction]) -> int:
    """Cycles from the first operand to the last result."""
    return max((line.depth for line in lines), default=0)


def busy_cycles(lines: list[BodyInstruction], vectors: int = 2) -> int:
    """Cycles that two arithmetic units need for a chunk of so many vectors."""
    return sum(line.slots for line in lines if not line.is_at_hand) * vectors // 2


def find_cut(lines: list[BodyInstruction], may_cross: Callable[[str], bool]) -> Cut | None:
    """The cut with the least cost; None when the chain is short."""
    longest = longest_chain(lines)
    if longest < LEAST_LATENCY:
        return None
    depths = sorted({line.depth for line in lines if MIDDLE[0] * longest <= line.depth <= MIDDLE[1] * longest})
    busy = busy_cycles(lines)
    best, least = None, 0.9 * longest
    for cut in (Cut(lines, depth) for depth in depths):
        if len(cut.crossing) > MOST_CROSSING or not all(map(may_cross, cut.crossing)):
            continue
        cut.divide()
        cost = cut.cost(busy)
        if cut.first and cut.second and cost < least:
            best, least = cut, cost
    return best


def pipelined_loop(code: LoopState, step: Pass, begin: Value, end: Value, trees: Sequence[Tree] = ()) -> bool:
    """All columns from `begin` to `end`, in two stages; False when the body is not fit for it."""
    if not is_straight_line(code, step):
        return False
    loop = PipelinedLoop(code, step, trees)
    if loop.cut is None:
        return False
    with code.e.when(code.e.icmp("slt", begin, end)):
        loop.write(loop.cut, begin, end)
    return True


class PipelinedLoop:
    """A straight body as it would be written once, where it is cut, and the loop made of its halves.

    The short last chunk is read from, and written to, the stack: `whole` is where it begins.
    """

    def __init__(self, code: LoopState, step: Pass, trees: Sequence[Tree]) -> None:
        self.code, self.step, self.trees, self.e = code, step, trees, code.e
        e, self.lanes = code.e, code.lanes
        self.column, self.places = e.argument("%column0", "i64", 1), {n: f"%place{n}" for n in side_by_side(code, step)}
        self.elements = {n: scalars.memory_type(code.kernel.accesses[n].dtype) for n in self.places}
        before, constants = len(e.lines), len(e.table)
        self.values = code.chunk_values(step, self.column, None, self.places)  # a draft, outside any loop
        self.wanted = [*(store.instruction for store in step.stores), *step.keep, *(tree.input for tree in trees)]
        self.draft = e.take_back(before)
        self.cut = self.find_cut()
        if self.cut is None:
            del e.table[constants:]

    def find_cut(self) -> Cut | None:
        """Where to cut, if that is worth it: each row takes one turn more than it has chunks, and reductions have many
        rows, and gain less than maps."""
        lines = parse(self.draft, {self.values[n].name for n in self.wanted})
        vectors = self.lanes * BITS["float"] // REGISTER_BITS
        worth = not self.trees or busy_cycles(lines, vectors) < 0.9 * longest_chain(lines)
        return find_cut(lines, lambda name: self.e.types[name][0] != "i1") if worth else None

    def write(self, cut: Cut, begin: Value, end: Value) -> None:
        """The loop over columns of which there are some."""
        e, code, lanes = self.e, self.code, self.lanes
        width = end - begin
        whole = begin + (width & -lanes)
        last = begin + ((width - 1) & -lanes)
        self.copies = {n: code.temporary(f"load{n}", element) for n, element in self.elements.items()}
        left = end - whole
        copy_all(code, [(e.offset(code.pointers[n], element, whole), self.copies[n], element)
                       for n, element in self.elements.items()], left)
        nothing = self.nothing(cut)
        constant = held_or_read(e, cut, self.draft, lanes, inside_others=bool(self.trees))
        with e.loop(begin, last + 2 * lanes, lanes, carried=nothing) as loop:
            now, past = e.intrinsic("smin", loop.index, last), loop.index - lanes
            inside = e.icmp("sge", past, begin) & e.icmp("slt", past, whole)
            finished = self.turn(cut, loop.values, (now, e.icmp("slt", now, whole)), (past, inside), constant)
            put_away(code, self.step, finished, past, inside, begin)
            add_chunks(code, self.trees, finished, past, inside)
            loop.next(*[Value(e, name, *e.types[name]) for name in cut.crossing])
        self.end(whole, left)

    def nothing(self, cut: Cut) -> list[Value]:
        """Values that the first iteration has to finish: whatever comes of it goes to the stack, where it is never
        read. Only a division of integers by nothing would have no meaning at all."""
        e = self.e
        divides = any(_DIVISION.search(line.parts[2]) for line in cut.second)
        found = [e.constant(0, *e.types[name]) if divides else Value(e, "poison", *e.types[name])
                 for name in cut.crossing]
        for tree in self.trees:
            e.store(tree.start(self.lanes), self.code.temporary(f"nothing{tree.number}", tree.element))
        return found

    def turn(self, cut: Cut, carried: Sequence[Value], now: tuple[Value, Value], past: tuple[Value, Value],
             constant: Callable[[re.Match[str]], str] | None) -> dict[int, Value]:
        """Finish the chunk at column `past` and begin that at `now`, each a column and whether its chunk is a whole
        one; the values that are finished, by instruction."""
        e, code = self.e, self.code
        begun = {self.column.name: now[0].name}
        ended = {name: value.name for name, value in zip(cut.crossing, carried, strict=True)}
        ended |= {line.name: "%" + e.fresh() for line in cut.again} | {self.column.name: past[0].name}
        for n, element in self.elements.items():
            for names, lines, (column, inside) in ((begun, cut.first, now), (ended, cut.second, past)):
                if self.places[n] in operands(lines):
                    names[self.places[n]] = choose(code, inside, code.pointers[n], element, column, self.copies[n])
        write(e, cut.second, ended, constant)
        write(e, cut.first, begun, constant)
        return {n: replace(self.values[n], name=ended.get(self.values[n].name, self.values[n].name))
                for n in self.wanted}

    def end(self, whole: Value, left: Value) -> None:
        """The short last chunk from the stack to its place, and into the reductions."""
        e, code = self.e, self.code
        written = {store.access: scalars.memory_type(code.kernel.instructions[store.instruction].dtype)
                   for store in self.step.stores}
        copy_all(code, [(code.temporary(f"store{n}", element), e.offset(code.pointers[n], element, whole), element)
                       for n, element in written.items()], left)
        for tree in self.trees:
            short = e.load(code.temporary(f"spare{tree.number}", tree.element), tree.element)
            tree.add_chunk(short, whole, e.first_lanes(left))


def put_away(code: LoopState, step: Pass, finished: dict[int, Value], column: Value, inside: Value,
             begin: Value) -> None:
    """A chunk's results to their places, or to the stack where it is not a whole one; and what later walks find."""
    e = code.e
    for store in step.stores:
        dtype = code.kernel.instructions[store.instruction].dtype
        element = scalars.memory_type(dtype)
        spare = code.temporary(f"store{store.access}", element)
        target = choose(code, inside, code.pointers[store.access], element, column, spare)
        e.store(scalars.to_memory(e, finished[store.instruction], dtype), target)
    for number in step.keep:  # whole chunks: their rows are padded
        element = kept_element(code, number)
        spare = code.temporary(f"keep{number}", element)
        target = choose(code, e.icmp("sge", column, begin), code.kept[number], element, column, spare)
        store_kept(code, finished[number], target)


def add_chunks(code: LoopState, trees: Sequence[Tree], finished: dict[int, Value], column: Value,
               inside: Value) -> None:
    """A whole chunk into the lanes of every reduction; what is none goes, joined with nothing, to the stack."""
    e = code.e
    for tree in trees:
        nothing, spare = (code.temporary(f"{stem}{tree.number}", tree.element) for stem in ("nothing", "spare"))
        lane = column & (TREE_LANES - 1)
        old = e.load(choose(code, inside, tree.lanes, tree.element, lane, nothing), tree.element)
        new = tree.join(old, tree.as_lane(finished[tree.input]))
        e.store(new, choose(code, inside, tree.lanes, tree.element, lane, spare))


def operands(lines: list[BodyInstruction]) -> set[str]:
    """The places of operands that lines read."""
    return {name for line in lines if line.is_operand for name in line.parts[3::2]}


def write(e: Emitter, lines: list[BodyInstruction], names: dict[str, str],
          constant: Callable[[re.Match[str]], str] | None) -> None:
    """Lines with other names, and with their constants from where `constant` has them."""
    for line in lines:
        text = line.renamed(names)
        e.lines.append(_CONSTANT.sub(constant, text) if constant and "splat (" in text else text)


def held_or_read(e: Emitter, cut: Cut, draft: list[str], lanes: int,
                 inside_others: bool) -> Callable[[re.Match[str]], str] | None:
    """How constants are written. Where registers are short they are read at each use.

    Else LLVM makes them before the outermost loop of all; but anew at each use where other loops inside that one leave
    no registers (`inside_others`), so they are read before this one. So are those beside two vectors only, which leave
    registers for them.
    """
    if is_short_of_registers(e, cut, draft):
        return lambda found: e.reread(Value(e, found[0], found[1], lanes)).name
    if not inside_others and lanes * BITS["float"] > 2 * REGISTER_BITS:
        return None
    elements = {each[0]: each[1] for each in _CONSTANT.finditer("\n".join(draft))}
    held = {text: e.reread(Value(e, text, element, lanes)).name for text, element in elements.items()}
    return lambda found: held[found[0]]


def is_short_of_registers(e: Emitter, cut: Cut, draft: list[str]) -> bool:
    """Whether what is carried and the constants leave nearly no register. LLVM would make constants before the loop,
    keep them on the stack and read them there: longer to compile, and slower than to read them where they are."""
    types = [e.types[name] for name in cut.crossing]
    carried = sum(-(-lanes * BITS[element] // REGISTER_BITS) for element, lanes in types)
    constants = {found[0] for found in _CONSTANT.finditer("\n".join(draft))}
    return carried + len(constants) > MOST_HELD


def choose(code: LoopState, condition: Value, base: str, element: str, index: Value, spare: str) -> str:
    """The address of an element, or of a chunk on the stack."""
    address, name = code.e.offset(base, element, index), "%" + code.e.fresh("p")
    code.e.line(f"{name} = select i1 {condition.name}, ptr {address}, ptr {spare}")
    return name


def is_straight_line(code: LoopState, step: Pass) -> bool:
    """Whether a chunk of this pass is computed without loops of its own, and lies side by side."""
    if step.kept or not (step.stores or step.reductions):
        return False
    accesses = [code.kernel.accesses[store.access] for store in step.stores]
    for number in step.needed:
        instruction = code.kernel.instructions[number]
        if instruction.name in ("gather", "index") or has_branches(instruction.name,
                                                                   scalars.register_type(instruction.dtype)):
            return False
        if instruction.name == "load":
            accesses.append(code.kernel.accesses[instruction.access])
    return all(access.pattern in ("unit", "zero") for access in accesses) and all(
        code.kernel.accesses[store.access].pattern == "unit" for store in step.stores)

"""Instructions in the loops of a kernel, of LLVM's text and of machine code in words.

A kernel is one function and those it calls in its loops, which count whole. Its loops are the blocks that can be come
back to: of a loop over rows with one over columns inside, both. What stands before and after them runs once a call and
is left out. Inline assembly counts by its lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass
class Block:
    """A basic block: how many instructions it has, how many of them in inline assembly, and where it may go on."""

    instructions: int = 0
    inline: int = 0
    next: list[str] = field(default_factory=list)


Blocks = dict[str, Block]  # by label, in their order; the first is where a function begins


def loop_instructions(functions: Iterable[tuple[str, Blocks]], entry: str = "kernel", inline: bool = False) -> int:
    """Instructions in loops of the function `entry`, and all those of the functions beside it; those of inline assembly
    alone with `inline`."""
    total = 0
    for name, blocks in functions:
        loops = cycles({label: block.next for label, block in blocks.items()}) if name == entry else [set(blocks)]
        total += sum(blocks[label].inline if inline else blocks[label].instructions for loop in loops for label in loop)
    return total


def cycles(graph: Mapping[str, list[str]]) -> list[set[str]]:
    """Strongly connected blocks that lie on a cycle (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[set[str]] = []
    for root in graph:
        work = [(root, iter(graph[root]))] if root not in index else []
        while work:
            label, rest = work[-1]
            if label not in index:
                index[label] = low[label] = len(index)
                stack.append(label)
                on_stack.add(label)
            child = next((to for to in rest if to in graph and (to not in index or to in on_stack)), None)
            if child is not None:
                if child in index:
                    low[label] = min(low[label], index[child])
                else:
                    work.append((child, iter(graph[child])))
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[label])
            if low[label] == index[label]:
                members = {label}
                while (member := stack.pop()) != label:
                    members.add(member)
                on_stack -= members | {label}
                if len(members) > 1 or label in graph[label]:
                    found.append(members)
    return found


# ----------------------------------------------------------------------------------------------------------- LLVM text
_INLINE = re.compile(r'asm sideeffect "([^"]+)"')
_IR_NAME = re.compile(r"@\"?([-\w.$]+)\"?\(")
_IR_LABEL = re.compile(r"^\"?([-\w.$]+)\"?:")
_IR_TARGET = re.compile(r"label %\"?([-\w.$]+)\"?")


def blocks_of_text(text: str) -> Iterator[tuple[str, Blocks]]:
    """The functions of an LLVM module, by name."""
    blocks: Blocks | None = None
    current, name = Block(), ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("define "):
            current, name = Block(), _IR_NAME.findall(line)[0]
            blocks = {"": current}
        elif line == "}" and blocks is not None:
            yield name, blocks
            blocks = None
        elif blocks is not None and (label := _IR_LABEL.match(line)):
            current = blocks[label[1]] = Block()
        elif blocks is not None and line and not line.startswith(";"):
            inline = sum(text.count("\\0A") + 1 for text in _INLINE.findall(line))
            current.inline += inline
            current.instructions += inline or not line.startswith(("i32 ", "i64 ", "]"))  # the arms of a switch
            current.next += _IR_TARGET.findall(line)


def without_inline_assembly(text: str) -> str:
    """The module with empty assembly in its place: LLVM assembles that of the machine it runs on only."""
    return _INLINE.sub('asm sideeffect ""', text)


# -------------------------------------------------------------------------------------------------------- machine code
_LABEL = re.compile(r"^([.\w$]+):")
_JUMP = re.compile(r"^(?:j\w+|b|b\.\w+|cbn?z|tbn?z)\s+(?:.*,\s*)?([.\w$]+)\s*$")
_ALWAYS = re.compile(r"^(?:jmpq?|b|retq?|ret|br|ud2)(?:\s|$)")


def blocks_of_assembly(text: str) -> Iterator[tuple[str, Blocks]]:
    """The functions of machine code in words, x86 (AT&T) or AArch64, by name."""
    blocks: Blocks | None = None
    current, falls, name = Block(), False, ""
    for line in (line.split("//")[0].strip() for line in text.splitlines()):
        label = _LABEL.match(line)
        if label and not label[1].startswith(".L") and not label[1].isdigit():
            if blocks is not None:
                yield name, blocks
            current, falls, name = Block(), True, label[1]
            blocks = {name: current}
        elif blocks is None or not line or line.startswith("#") or (line.startswith(".") and not label):
            continue  # data, directives and remarks
        elif label:
            current = _begin(_own(label[1], blocks), blocks, current if falls else None)
            falls = True
        else:
            current.instructions += 1
            jump, ends = _JUMP.match(line), _ALWAYS.match(line)
            current.next += [_target(jump[1], blocks)] if jump else []
            if jump or ends:
                current = _begin(f"+{len(blocks)}", blocks, None if ends else current)
                falls = True
    if blocks is not None:
        yield name, blocks


def _begin(name: str, blocks: Blocks, before: Block | None) -> Block:
    """A new block, into which the one before may fall through."""
    if before is not None:
        before.next.append(name)
    blocks[name] = Block()
    return blocks[name]


def _own(name: str, blocks: Blocks) -> str:
    """Numbers as labels, as assembly written by hand has them, may stand several times."""
    return name if not name.isdigit() else f"{name}:{sum(label.startswith(name + ':') for label in blocks)}"


def _target(name: str, blocks: Blocks) -> str:
    """`1b` is the last label 1 before, `1f` the next one."""
    if not re.fullmatch(r"\d+[bf]", name):
        return name
    seen = sum(label.startswith(name[:-1] + ":") for label in blocks)
    return f"{name[:-1]}:{seen - (name[-1] == 'b')}"

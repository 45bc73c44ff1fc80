"""The C header of a library: each function's record of arguments, sizes, alignment, workspace and codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from morpho.ahead.functions import Field, Lowered, largest
from morpho.ahead.targets import ExportTarget
from morpho.base.dims import Dim, Size, evaluate

C_TYPES = {"bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float", "float64": "double",
           "complex64": "float", "complex128": "double"}

CODES = """/* What a call returns. Kinds below 16 come before anything is written; code >> 8 is then the number of the
 * struct's member, counted from 0. */
enum {
    MORPHO_OK = 0,
    MORPHO_SIZE = 1,       /* a buffer is NULL or has another number of bytes */
    MORPHO_ALIGNMENT = 2,  /* an address is no multiple of the element's size */
    MORPHO_BOUNDS = 3,     /* a dynamic size lies outside its bounds */
    MORPHO_WORKSPACE = 4,  /* NULL, too small, or no multiple of 64 */
    MORPHO_WEIGHTS = 5,    /* not the weights that were written with this library */
    MORPHO_THREADS = 6,    /* fewer than one thread */
    MORPHO_PROCESSOR = 7,  /* none of the instruction sets of a library of several is there */
    /* Faults while it runs: outputs then hold anything, states that are written in place too. */
    MORPHO_INDEX = 16,      /* an index lies outside its axis */
    MORPHO_SINGULAR = 18,   /* a matrix to be solved with is singular */
    MORPHO_INDEFINITE = 19, /* a matrix to be factorised is not positive definite */
    MORPHO_ENDLESS = 20,    /* a factorisation does not converge */
    MORPHO_NOT_FINITE = 21, /* a matrix has an infinity or NaN */
    MORPHO_NEGATIVE = 22    /* a function of a real matrix is complex */
};
#define MORPHO_KIND(code) ((code) & 255)
#define MORPHO_MEMBER(code) ((code) >> 8)
"""

COMMON = """#ifndef MORPHO_EXPORT_H
#define MORPHO_EXPORT_H
#include <stddef.h>
#include <stdint.h>
/* Memory of the caller's. `bytes` must be what the member's comment says. */
typedef struct { void *data; uint64_t bytes; } morpho_buffer;
typedef void (*morpho_task)(void *data, int64_t number);
/* The host's threads: run(host, n, task, data) calls task(data, 0) to task(data, n - 1), each once, on any threads, and
 * returns when all have returned. `threads` is the most that may run side by side. NULL in a call: no threads. */
typedef struct {
    int64_t threads;
    void (*run)(void *host, int64_t n, morpho_task task, void *data);
    void *host;
} morpho_threads;
""" + CODES + "#endif\n"


@dataclass
class Described:
    """A library as its header describes it."""

    name: str
    target: ExportTarget
    functions: list[list[Lowered]]  # per function one for each instruction set
    weights_bytes: int  # of the file beside; 0: inside
    weights_name: str
    most_threads: int
    version: str


def header_text(library: Described) -> str:
    """The whole header."""
    guard = f"{library.name.upper()}_H"
    made_by = f"made by Morpho {library.version} for {library.target.name} ({library.target.triple})"
    parts = [f"/* {library.name}: {made_by}.\n"
             " * Needs no library of Morpho's and never allocates."
             " Calls with different buffers may run side by side. */",
             f"#ifndef {guard}\n#define {guard}", COMMON,
             "#ifdef __cplusplus\nextern \"C\" {\n#endif"]
    parts += [_function(library, each) for each in library.functions]
    if library.weights_bytes:
        parts.append(_weights(library))
    parts.append("#ifdef __cplusplus\n}\n#endif\n#endif")
    return "\n".join(parts) + "\n"


def _size_text(size: Size) -> str:
    return str(size) if not isinstance(size, Dim) else str(size).replace("*", " * ").replace("+", " + ")


def shape_text(field: Field) -> str:
    """`float32 (n, 3)`."""
    inner = ", ".join(map(_size_text, field.shape))
    return f"{field.dtype} ({inner}{',' if len(field.shape) == 1 else ''})"


def workspace_bytes(each: Sequence[Lowered]) -> int:
    """Bytes that a call needs at most, whichever instruction set is chosen."""
    return max(lowered.entry.workspace_bytes for lowered in each)


def _function(library: Described, each: list[Lowered]) -> str:
    lowered = each[0]
    traced, name = lowered.traced, lowered.traced.name
    upper_name = name.upper()
    symbols = lowered.tables.symbols
    lines = [f"#define {upper_name}_WORKSPACE_BYTES {workspace_bytes(each)}ull /* 64-byte aligned; at the upper bounds "
             f"of sizes, for {library.most_threads} thread{'s' if library.most_threads > 1 else ''} */"]
    members = []
    for field in traced.fields:
        lines.append(f"#define {upper_name}_{field.name.upper()}_BYTES {largest(field)}ull"
                     + (" /* at the upper bounds */" if any(isinstance(s, Dim) for s in field.shape) else ""))
        members.append((f"morpho_buffer {field.name};", f"{field.role}: {shape_text(field)}, {c_type(field)}"
                        + (", read and written in place" if field.role == "state" else "")))
    if library.weights_bytes:
        members.append(("morpho_buffer weights;", f"the bytes of {library.weights_name}, 64-byte aligned"))
    members.append(("morpho_buffer workspace;", f"at least {upper_name}_WORKSPACE_BYTES, anything in it"))
    for symbol in symbols:
        least, most = traced.symbols[symbol]
        members.append((f"int64_t {symbol};", f"from {least} to {most}"))
    members.append(("const morpho_threads *threads;", f"NULL, or up to {library.most_threads} threads"))
    width = max(len(text) for text, _ in members)
    body = "\n".join(f"    {text:<{width}}  /* {comment} */" for text, comment in members)
    lines.append(f"typedef struct {{\n{body}\n}} {name}_args;")
    lines.append(f"int32_t {name}(const {name}_args *args);")
    lines.append(_wrapper(library, traced.fields, name, symbols))
    return "\n".join(lines) + "\n"


def c_type(field: Field) -> str:
    """The C type of an element; complex numbers are pairs."""
    text = str(field.dtype)
    return C_TYPES.get(text, f"{text}_t")


def _bytes_expression(size: Size) -> str:
    if not isinstance(size, Dim):
        return f"{size}ull"
    terms = []
    for monomial, coefficient in size.terms:
        factors = [f"(uint64_t){symbol[0]}" for symbol in monomial]
        terms.append(" * ".join([*factors, f"({coefficient}ll)"]))
    return f"(uint64_t)({' + '.join(terms)})"


def _wrapper(library: Described, fields: Sequence[Field], name: str, symbols: Sequence[str]) -> str:
    """A call with plain pointers, whose sizes are taken as right."""
    parameters = [f"{'const ' if field.role == 'input' else ''}{c_type(field)} *{field.name}" for field in fields]
    parameters += ["const void *weights"] if library.weights_bytes else []
    parameters += ["void *workspace", *[f"int64_t {symbol}" for symbol in symbols]]
    lines = [f"/* The same with plain pointers, each to as many elements as the struct says. */\n"
             f"static inline int32_t {name}_call({', '.join(parameters)}) {{",
             f"    {name}_args args;"]
    for field in fields:
        lines.append(f"    args.{field.name}.data = (void *){field.name};")
        lines.append(f"    args.{field.name}.bytes = {_bytes_expression(field.bytes)};")
    if library.weights_bytes:
        lines.append("    args.weights.data = (void *)weights;")
        lines.append(f"    args.weights.bytes = {library.weights_bytes}ull;")
    lines.append("    args.workspace.data = workspace;")
    lines.append(f"    args.workspace.bytes = {name.upper()}_WORKSPACE_BYTES;")
    lines += [f"    args.{symbol} = {symbol};" for symbol in symbols]
    lines += ["    args.threads = NULL;", f"    return {name}(&args);", "}"]
    return "\n".join(lines)


def _weights(library: Described) -> str:
    name = library.name
    return f"""/* Whether these are the weights that were written with this library: MORPHO_OK or MORPHO_WEIGHTS. Every
 * byte is read once. */
#define {name.upper()}_WEIGHTS_BYTES {library.weights_bytes}ull
#define {name.upper()}_WEIGHTS_FILE "{library.weights_name}"
int32_t {name}_check_weights(const void *data, uint64_t bytes);
#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
/* Map a weights file and check it; {name}_close_weights lets it go. */
static inline int32_t {name}_open_weights(const char *path, morpho_buffer *weights) {{
    struct stat status;
    int file = open(path, O_RDONLY);
    if (file < 0) return MORPHO_WEIGHTS;
    weights->data = MAP_FAILED;
    weights->bytes = 0;
    if (fstat(file, &status) == 0 && (uint64_t)status.st_size == {name.upper()}_WEIGHTS_BYTES) {{
        weights->bytes = (uint64_t)status.st_size;
        weights->data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    }}
    close(file);
    if (weights->data == MAP_FAILED) {{ weights->data = NULL; return MORPHO_WEIGHTS; }}
    if ({name}_check_weights(weights->data, weights->bytes) != MORPHO_OK) {{
        munmap(weights->data, (size_t)weights->bytes);
        weights->data = NULL;
        return MORPHO_WEIGHTS;
    }}
    return MORPHO_OK;
}}
static inline void {name}_close_weights(morpho_buffer *weights) {{
    if (weights->data) munmap(weights->data, (size_t)weights->bytes);
    weights->data = NULL;
}}
#endif
"""


def sizes_at(fields: Sequence[Field], sizes: dict[str, int]) -> list[int]:
    """The bytes of each field at these sizes."""
    return [evaluate(field.bytes, sizes) for field in fields]

"""`mo.compile`: a Python function becomes one native function, called without Python between its kernels.

The first call with new shapes or dtypes traces the function, optimises the graph, compiles it (`tracing.py`) and fills
the native entry's tables (`native_entry.py`). Later calls like it are checked and run by the entry itself; every other
call takes the slow path (`slow_path.py`) to the same code.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from morpho.backends.driver.abi import Distances
from morpho.backends.driver.executable import loaded, set_distances
from morpho.backends.driver.layout import make_vectorcallable, slot_offset
from morpho.base.checks import as_real, as_whole
from morpho.base.errors import ArgumentError, fail
from morpho.base.python.notebook import Page, folded
from morpho.base.units import parse_bytes
from morpho.ir.printing import to_dot, to_text
from morpho.passes.remat.remat import Budget
from morpho.runtime.plans import evaluate as evaluation
from morpho.tensor.autodiff.autograd import no_grad
from morpho.tensor.core import Tensor
from morpho.tensor.jit import slow_path
from morpho.tensor.jit.compiled_function import CompiledFunction
from morpho.tensor.jit.explain import explain_text, predicted_seconds, statistics
from morpho.tensor.jit.native.rows import install as install_rows
from morpho.tensor.recorded_programs import set_compile
from morpho.tensor.recording import evaluator_counts
from morpho.tensor.tools.foreign_calls import unpicklable

log = logging.getLogger("morpho")


class Compiled(CompiledFunction):
    """A compiled function. Call it like the original, also with `out=` for results in memory you own.

    `explain()` says what was done, `stats` holds the numbers, `dot(path)` draws the graph.
    """

    __reduce_ex__ = unpicklable("a compiled function", "compile it again where it is needed: its code is kept on disk")

    __array_ufunc__ = None  # np.float32(1) == f is False: NumPy would read the structure as an array

    def __init__(self, function: Callable[..., Any], dynamic: Mapping[str, Any] | None = None,
                 whole: bool = False, budget: Budget | None = None) -> None:
        super().__init__(function, partial(slow_path.call, self), dynamic, whole, budget)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.through_python(*args, **kwargs)

    # -- looking inside ------------------------------------------------------------------------------------------------
    @property
    def stats(self) -> dict[str, Any]:
        """Plain numbers: nodes per pass, kernels, bytes, milliseconds, cache hits, calls, recompiles, fallbacks, ..."""
        return statistics(self)

    def explain(self, bounds: bool = False) -> str:
        """Explain the last signature: what was folded, merged, removed, fused and planned, and its cost; after
        `measure` or a call inside `mo.profile()` also the time of every step and the share of the machine's limit it
        reached.

        A step stands with the operations fused into it, the first few by name, and its sizes: rows x columns of a loop;
        of a product rows x length of its sums x columns, with the number of products before them if there are several.
        The rows of a convolution are its pixels, and its columns the channels it makes.

        Args:
            bounds: Also show each kernel's lower bound, by memory, arithmetic and launch, the share of it that was
                reached, and what merging two kernels could gain.

        >>> import morpho as mo
        >>> f = mo.compile(lambda x, w: mo.relu(x @ w))
        >>> _ = f(mo.ones((37, 96)), mo.ones((96, 70)))
        >>> "matmul+maximum  37 x 96 x 70" in f.explain()
        True
        """
        return Page(explain_text(self, bounds))

    def _repr_html_(self) -> str:
        return folded(f"compiled {self.__name__}{self.signature if self.current is not None else ''}",
                      explain_text(self))

    def measure(self, *args: Any, repeats: int = 5, **kwargs: Any) -> dict[str, list[float]]:
        """Call it once to warm up and then `repeats` times, timing every step; the least seconds of each, and what the
        machine would need.

        The steps run one by one, so each pays its call from Python, about a microsecond. States change as they do in
        `repeats` + 1 ordinary calls.

        >>> import morpho as mo
        >>> f = mo.compile(lambda x: mo.softmax(x @ x, axis=-1))
        >>> times = f.measure(mo.ones((32, 32)))
        >>> sorted(times)
        ['measured_s', 'predicted_s']
        """
        if repeats < 1:
            raise fail(ArgumentError, "measure", f"repeats={repeats} is not positive")
        rounds: list[list[float]] = []
        args, kwargs = slow_path.borrowed(args, kwargs)  # arrays would be served by the native entry, unclocked
        with no_grad():  # arguments that want a gradient would call the original
            self.through_python(*args, **kwargs)
            for _ in range(repeats):
                evaluation.clock.seconds = []
                try:
                    self.through_python(*args, **kwargs)
                finally:
                    rounds.append(evaluation.clock.seconds)
                    evaluation.clock.seconds = None
        assert self.current is not None
        self.current.seconds = [min(times) for times in zip(*rounds, strict=True)]
        self.current.sizes = dict(getattr(evaluation.clock, "sizes", {}))
        return {"measured_s": list(self.current.seconds), "predicted_s": predicted_seconds(self)}

    def dot(self, path: Any = None) -> str:
        """The optimised graph for Graphviz, also written to `path` if given."""
        if self.current is None:
            raise fail(ArgumentError, "dot", f"{self.__name__} has not been called yet")
        text = to_dot(self.current.plan.optimised)
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return text

    def text(self, after: str = "") -> str:
        """The graph in words after a pass, the last one unless named; `traced` is as it was before all of them.

        >>> f = mo.compile(lambda x: mo.exp(x) * 1)
        >>> result = f(mo.ones(3))
        >>> print(f.text(after="simplify"))
        %0 = parameter(index=0, shape=(3,), dtype=float32) [] : float32[3]
        %1 = exp [%0] : float32[3]
        return %1
        """
        if self.current is None:
            raise fail(ArgumentError, "text", f"{self.__name__} has not been called yet")
        if not after:
            return to_text(self.current.plan.optimised)
        texts = self.current.plan.texts()
        if after not in texts:
            raise fail(ArgumentError, "text", f"there is no pass {after!r} at this level", "use " + ", ".join(texts))
        return texts[after]

    def __repr__(self) -> str:
        return f"<compiled {self.__name__}{self.signature}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: bound to its instance, which is then a static argument."""
        return self if instance is None else _Bound(self, instance)


class _Bound:
    """A compiled method of one instance."""

    def __init__(self, compiled: Compiled, instance: Any) -> None:
        self._compiled, self._instance = compiled, instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(self._instance, *args, **kwargs)

    def measure(self, *args: Any, **kwargs: Any) -> dict[str, list[float]]:
        """`Compiled.measure` with the instance before the arguments."""
        return self._compiled.measure(self._instance, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)


def compile(function: Callable[..., Any] | None = None, *, dynamic: Mapping[str, Any] | None = None,
            whole: bool = False, memory_budget: int | float | str | None = None) -> Any:
    """Make one native function of a function of tensors; also a decorator.

    Call the result like the original. The first call with new shapes or dtypes traces the function and compiles it;
    later ones run native code. `f(a, b, out=c)` writes into a tensor you own. `f.explain()` says what was done,
    `f.stats` holds the numbers, `f.dot("graph.dot")` draws the graph.

    function: takes and returns tensors, or tuples, lists and dicts of them. Strings among its arguments are constants
        of the compiled code, and numbers are as long as they stay the same: one that changes from call to call
        becomes an input, unless its value is asked for (a shape, `range`, `if`). NumPy's numbers keep their dtype.
        Tensors of the surroundings and `mo.State` slots are inputs.
    dynamic: sizes that may change without recompiling, by parameter and axis: `{"x": {0: mo.Dim("n", 1, 4096)}}`.
        For a parameter that is a tuple, list or dict of tensors, the same form with such a dict, or None, in place
        of each tensor: `{"pair": ({0: n}, None)}`.
    whole: refuse a function with parts that run on the host instead of in native code.
    memory_budget: the most memory a call may need, with its arguments, states and results: a number of bytes, a text
        such as "200MB", or a share of what it needs otherwise, up to 1.0. What does not fit is computed again instead
        of being kept, with the same bits; `f.explain()` says what. An error names the least that can be had.

    >>> import morpho as mo
    >>> f = mo.compile(lambda a, b: mo.gelu(a + b) * 0.5)
    >>> f(mo.ones(3), mo.ones(3)).numpy()
    array([0.97724986, 0.97724986, 0.97724986], dtype=float32)
    """
    if function is None:
        return lambda inner: compile(inner, dynamic=dynamic, whole=whole, memory_budget=memory_budget)
    if not callable(function):
        raise fail(ArgumentError, "compile", f"{type(function).__name__} is not a function")
    if not _entry_ready:
        _say_unknown()
    return Compiled(function, dynamic, whole, _budget(memory_budget))  # LLVM is loaded when a first call compiles


def _budget(given: int | float | str | None) -> Budget | None:
    if given is None:
        return None
    if isinstance(given, str):
        return Budget(parse_bytes(given, "compile", "memory_budget"))
    number = as_whole(given)
    if number is not None and number > 0:
        return Budget(number)
    share = as_real(given) if number is None else None
    if share is not None and 0 < share <= 1:
        return Budget(share=share)
    raise fail(ArgumentError, "compile", f"memory_budget={given!r} is no amount of memory",
               'give bytes as a whole number, a text such as "200MB", or a share from above 0.0 to 1.0')


def _measure() -> bool:
    """Tell the driver where things lie inside objects, and route calls of `Compiled` to its native entry where this
    interpreter's objects look as expected."""
    probe = Compiled.__new__(Compiled)
    inside = [slot_offset(Tensor, name) for name in ("_record", "_storage", "_node", "_layout", "_track",
                                                       "_base", "_key")]
    distances = Distances(ctypes.addressof(probe) - id(probe) + 8, *inside)
    set_distances(distances)
    ready = make_vectorcallable(Compiled, probe)
    if ready:
        loaded.append(lambda: install_rows(distances))
    return ready


_entry_ready = _measure()
set_compile(compile)
evaluator_counts[:] = [evaluation.counts]


@cache
def _say_unknown() -> None:
    log.warning("this Python's objects are unknown to Morpho: compiled calls go through Python (said once)")

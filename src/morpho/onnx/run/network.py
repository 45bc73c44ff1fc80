"""A model as a callable: traced and compiled for the shapes of its arguments, or run as it goes where that cannot be.

Three ways, tried in this order, each counted in `stats`:

- **compiled**: the whole graph is one native function; one program for each combination of shapes, or for all of them
  where sizes are declared dynamic;
- **compiled for values**: a small integer input that decides shapes or branches (a sampling rate, a length) is a
  constant of the program, and there is a program for each of its values;
- **as it goes**: node after node, lazily; what a shape, a branch or a text depends on is computed when it is asked for.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.base.python.notebook import Page
from morpho.onnx.operators.control import ENDLESS
from morpho.onnx.proto.dtypes import element_type
from morpho.onnx.proto.model import Model, TypeInfo, Value
from morpho.onnx.run.coded import Coded
from morpho.onnx.run.kept import Header, ModelFile, ProgramSource
from morpho.onnx.run.repeated import RepeatedCall
from morpho.onnx.run.symbols import symbols_of
from morpho.onnx.run.values import EMPTY, NeedsValue, element_type_of, is_text, of_argument, tensor
from morpho.onnx.run.walk import Constants, GraphWalk
from morpho.tensor.core import Tensor

log = logging.getLogger("morpho")
MOST_PROGRAMS = 32  # for values of static inputs
MOST_STATIC_INPUT = 64  # elements of an input whose value may be part of a program
CODED = "element type "


class Network:
    """A loaded model. Call it with arrays or tensors, by place or by name; it returns a tensor, or a tuple of them.

    >>> import morpho as mo
    >>> path = mo.onnx.save(lambda x: mo.relu(x) * 2, "double.onnx", mo.zeros(3))
    >>> network = mo.onnx.load(path)
    >>> network.input_names, network(mo.asarray([-1.0, 0.5, 2.0])).tolist()
    (('x',), [0.0, 1.0, 4.0])
    """

    def __init__(self, model: Model | Header, name: str, dynamic: Mapping[str, Any] | bool = False,
                 file: ModelFile | None = None) -> None:
        """Of a model, or of what an earlier process noted of its file, which is parsed when that is needed."""
        self.name, self._file, self._lock = name, file, threading.RLock()
        self._model: Model | None = None
        self._counts: Counter[str] = Counter()
        self._constants = Constants()
        header = model if isinstance(model, Header) else self._parsed(model)
        self.inputs: tuple[Value, ...] = header.inputs
        self.input_names = tuple(value.name for value in self.inputs)
        self.output_names = header.outputs
        self._symbols = symbols_of(self.inputs, dynamic)
        self._static: set[str] = set(header.static)
        self._counts["static_inputs"] = len(self._static)
        self._programs: OrderedDict[Any, Any] = OrderedDict()
        self._repeated: RepeatedCall | None = None
        self._reason = ""  # why the model runs as it goes

    def _parsed(self, model: Model) -> Header:
        """Take a model, and give its ends."""
        self._model, given = model, model.graph.initializers
        self._constants.prepare(model.graph)
        return Header(tuple(value for value in model.graph.inputs if value.name not in given),
                      tuple(value.name for value in model.graph.outputs), frozenset())

    @property
    def model(self) -> Model:
        """The parsed file."""
        with self._lock:
            if self._model is None:
                assert self._file is not None, "a header is of a file"
                self._parsed(self._file.parse())
            assert self._model is not None
            return self._model

    # -- calls ---------------------------------------------------------------------------------------------------------
    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        again = {**named, **dict(zip(self.input_names, arguments))}  # given twice, or too many: fewer than were given
        is_once = len(again) == len(arguments) + len(named)
        results = (self._again(again) if is_once else None) or self._run(self._bound(arguments, named))
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, inputs: Mapping[str, Any] | None = None, *others: Any) -> dict[str, Any]:
        """The outputs by name for inputs by name, whatever characters the names have.

        >>> path = mo.onnx.save(lambda x: x + 1, "more.onnx", mo.zeros(2))
        >>> mo.onnx.load(path).run({"x": [1.0, 2.0]})
        {'y': Tensor([2., 3.], dtype=float32)}
        """
        if others or not isinstance(inputs, Mapping):  # ONNX Runtime's run has the names of outputs first
            what = f"{1 + len(others)} arguments" if others else type(inputs).__name__
            raise self._error(f"run takes one dictionary of inputs by name, not {what}",
                              "write run({name: array, ...}), which gives all outputs by name")
        return dict(zip(self.output_names, self._again(inputs) or self._run(self._bound((), inputs))))

    def _again(self, inputs: Mapping[str, Any]) -> list[Any] | None:
        """The outputs of a call like the last one; None where it is another."""
        repeated = self._repeated
        tensors = repeated.arguments(inputs) if repeated is not None else None
        if repeated is None or tensors is None:
            return None
        results = repeated.program(*tensors)
        self._counts["compiled_calls"] += 1
        return [_decoded(result) for result in results]

    def _bound(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The arguments in the order of the inputs, as values of the types that the model declares."""
        if len(arguments) > len(self.inputs):
            raise self._error(f"{len(arguments)} inputs are given, and the model has {len(self.inputs)}: "
                              f"{', '.join(self.input_names)}")
        given = dict(zip(self.input_names, arguments))
        for name, value in named.items():
            if name not in self.input_names:
                raise self._error(f"there is no input {name!r}; the model has {', '.join(self.input_names)}")
            if name in given:
                raise self._error(f"the input {name!r} is given twice")
            given[name] = value
        missing = [value.name for value in self.inputs
                   if value.name not in given and not (value.type and value.type.form == "optional")]
        if missing:
            raise self._error(f"the input {missing[0]!r} is missing" if len(missing) == 1 else
                              f"inputs are missing: {', '.join(missing)}")
        return [self._checked(value, given.get(value.name)) for value in self.inputs]

    def _checked(self, declared: Value, given: Any) -> Any:
        kind = declared.type
        if kind is not None and kind.form == "optional":
            return EMPTY if given is None else of_argument(given)
        if kind is not None and kind.form == "sequence":
            if not isinstance(given, list | tuple):
                raise self._error(f"the input {declared.name!r} is a sequence; give a list")
            return of_argument(given)
        if isinstance(given, Tensor):
            value: Any = given
        else:
            try:
                array = np.asarray(given)
                if not array.dtype.isnative:
                    given = array = array.astype(array.dtype.newbyteorder("="))
                if array.dtype.kind not in "biufcOUSTV" or (array.dtype.kind == "O" and not _all_texts(array)):
                    raise TypeError
                value = of_argument(_in_declared_type(given, array, kind))
            except (TypeError, ValueError, MorphoError):
                raise self._error(f"the input {declared.name!r} is a {type(given).__name__} that is no array") from None
        if kind is not None and kind.element:
            self._check_type(declared.name, kind, value)
        return value

    def _check_type(self, name: str, kind: TypeInfo, value: Any) -> None:
        wanted, got = element_type(kind.element), element_type_of(value)
        if wanted.code != got.code:
            raise self._error(f"the input {name!r} has the type {got.name}, and the model takes {wanted.name}",
                              f"convert it: x.astype({wanted.dtype.name!r})" if wanted.dtype is not None else "")
        shape = kind.shape
        if shape is None:
            return
        ok = len(shape) == len(value.shape) and all(
            not isinstance(size, int) or size < 0 or size == there for size, there in zip(shape, value.shape))
        if not ok:
            raise self._error(f"the input {name!r} has the shape {tuple(value.shape)}, and the model takes "
                              f"({', '.join('?' if size is None else str(size) for size in shape)})")

    def _error(self, message: str, hint: str = "") -> MorphoError:
        return fail(ArgumentError, "onnx", f"{self.name}: {message}", hint)

    # -- the three ways ------------------------------------------------------------------------------------------------
    def _run(self, values: list[Any]) -> list[Any]:
        if not self._reason and all(isinstance(value, Tensor | np.ndarray) and not is_text(value) for value in values):
            for _ in range(len(values) + 2):  # each turn makes another input static, or is the last
                try:
                    return self._compiled(values)
                except NeedsValue as need:
                    if not self._specialised(need, values):
                        self._give_up(need.what)
                        break
                except MorphoError as error:
                    if str(error).startswith(f"[{ENDLESS}]"):
                        raise  # it would not end on the host either
                    if self._symbols:
                        self._symbols, self._programs, self._repeated = {}, OrderedDict(), None
                        self._counts["specialised"] += 1
                        log.warning("onnx: %s is compiled for each shape, since %s (said once)", self.name, error)
                        continue
                    results = self._as_it_goes(values)  # a mistake of the caller's is told from here
                    self._give_up(str(error))
                    return results
        return self._as_it_goes(values)

    def _compiled(self, values: list[Any]) -> list[Any]:
        static = {name: value for name, value in zip(self.input_names, values) if name in self._static}
        key = tuple((name, array.dtype.str, array.shape, array.tobytes()) for name, array in
                    ((name, value.numpy() if isinstance(value, Tensor) else value) for name, value in static.items()))
        with self._lock:
            program = self._programs.get(key)
            if program is None:
                program = self._programs[key] = self._program(
                    {name: value.numpy() if isinstance(value, Tensor) else value for name, value in static.items()})
                if len(self._programs) > MOST_PROGRAMS:
                    self._programs.popitem(last=False)
        results = program(*(value for name, value in zip(self.input_names, values) if name not in static))
        self._counts["compiled_calls"] += 1
        self._repeated = RepeatedCall.of(self.input_names, values, self._static, program)
        return [_decoded(result) for result in results]

    def _program(self, static: dict[str, Any]) -> Any:
        """The compiled function of the inputs that are not static."""
        free = [name for name in self.input_names if name not in static]

        def model(*arguments: Any) -> tuple[Any, ...]:
            self._counts["traces"] += 1
            before = self._counts.total()
            walk = GraphWalk(self.model, self._constants, True, self._counts, self.name)
            given = {**static, **dict(zip(free, arguments))}
            outputs = self._as_declared(walk.run(self.model.graph, self._arguments(given)))
            if source is not None:  # what was counted on the way is no part of a trace
                source.is_whole = self._counts.total() == before
            return tuple(_encoded(output) for output in outputs)

        safe = {name: f"x{place}" for place, name in enumerate(free)}
        model.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
            inspect.Parameter(safe[name], inspect.Parameter.POSITIONAL_ONLY) for name in free])
        model.__name__ = self.name.partition(".")[0] or "model"
        dynamic = {safe[name]: axes for name, axes in self._symbols.items() if name in safe}
        made = mo.compile(model, dynamic=dynamic or None)
        source = made.source = self._source(static)
        return made

    def _source(self, static: dict[str, Any]) -> ProgramSource | None:
        """Key of stored traces of a program; None if nothing of the file is stored."""
        if self._file is None or not self._file.digest:
            return None
        parts = [(name, array.dtype.str, array.shape, array.tobytes()) for name, array in sorted(static.items())]
        return ProgramSource(self._file, (parts, sorted(self._static)), self._constants, self._keep)

    def _keep(self) -> None:
        """There is a trace: the ends are kept too, without which it is not looked for."""
        assert self._file is not None
        self._file.keep(Header(self.inputs, self.output_names, frozenset(self._static)))

    def _arguments(self, given: Mapping[str, Any]) -> list[Any]:
        """A value for every input of the graph; early files name their weights among them."""
        weights = self.model.graph.initializers
        return [given[value.name] if value.name in given else self._constants.value(weights[value.name])
                for value in self.model.graph.inputs]

    def _as_declared(self, outputs: list[Any]) -> list[Any]:
        """Outputs, of the element types that the file says."""
        for declared, output in zip(self.model.graph.outputs, outputs):
            kind = declared.type
            if kind is None or kind.form != "tensor" or not kind.element or not (
                    isinstance(output, Tensor | Coded) or (isinstance(output, np.ndarray) and output.dtype != object)):
                continue
            wanted, got = element_type(kind.element), element_type_of(output)
            if wanted.code != got.code:
                raise self._error(f"the output {declared.name!r} is declared as {wanted.name}, and is {got.name}")
        return outputs

    def _specialised(self, need: NeedsValue, values: list[Any]) -> bool:
        """Make the inputs that a value depends on static, if they are few small integers."""
        sources = need.sources or frozenset[str]()
        found = [value for name, value in zip(self.input_names, values) if name in sources]
        small = all(value.dtype != mo.float32 and mo.asarray(value).dtype.kind in "iub"
                    and int(np.prod(value.shape)) <= MOST_STATIC_INPUT for value in found)
        if not found or not small or sources <= self._static:
            return False
        self._static |= sources
        self._programs.clear()  # of the inputs before, which were too few
        self._counts["static_inputs"] = len(self._static)
        return True

    def _give_up(self, reason: str) -> None:
        self._reason, self._repeated = reason, None
        log.info("onnx: %s runs as it goes, since %s (said once)", self.name, reason)

    def _as_it_goes(self, values: list[Any]) -> list[Any]:
        self._counts["host_calls"] += 1
        walk = GraphWalk(self.model, self._constants, False, self._counts, self.name)
        values = [mo.asarray(value) if isinstance(value, np.ndarray) and value.dtype.kind in "fc" else value
                  for value in values]  # integers may be shapes, and are known; the rest is computed by compiled code
        outputs = self._as_declared(walk.run(self.model.graph, self._arguments(dict(zip(self.input_names, values)))))
        results = [tensor(output) if isinstance(output, np.ndarray) and not is_text(output) else output
                   for output in outputs]
        mo.realise(*(result for result in results if isinstance(result, Tensor)))
        return results

    # -- looking inside ------------------------------------------------------------------------------------------------
    @property
    def stats(self) -> dict[str, Any]:
        """Counts: `traces`, `compiled_calls`, `host_calls` and `host_values` (what ran as it goes, and the values that
        were asked for there), `static_inputs`, `specialised`; `reason` says why, where calls are not compiled."""
        keys = ("traces", "compiled_calls", "host_calls", "host_values", "host_loops", "static_inputs", "specialised")
        return {**{key: self._counts[key] for key in keys}, "programs": len(self._programs), "reason": self._reason}

    @property
    def program(self) -> Any:
        """The compiled function that was used last, with its `explain`, `measure`, `stats`; None before the first call
        and where calls are not compiled."""
        return next(reversed(self._programs.values())) if self._programs and not self._reason else None

    def zeros(self) -> dict[str, Any]:
        """Zeros for every input that is a tensor of a declared type and rank; a size that is open is 1.

        >>> path = mo.onnx.save(lambda x: mo.exp(x), "exp.onnx", mo.zeros(4))
        >>> mo.onnx.load(path).zeros()["x"].shape
        (4,)
        """
        made = {}
        for value in self.inputs:
            dtype = element_type(value.type.element).dtype if value.type and value.type.form == "tensor" else None
            if dtype is not None and value.type is not None and value.type.shape is not None:
                shape = [size if isinstance(size, int) and size > 0 else 1 for size in value.type.shape]
                made[value.name] = np.zeros(shape, dtype.numpy)
        return made

    def function(self, inputs: Mapping[str, Any] | None = None) -> tuple[Callable[..., Any], list[Tensor]]:
        """The model as one plain function of tensors, and its arguments for these inputs (zeros where none are given):
        what other parts of Morpho trace. An error where a shape, a branch or a text depends on computed data.

        >>> path = mo.onnx.save(lambda x: mo.exp(x), "exp.onnx", mo.zeros(4))
        >>> function, arguments = mo.onnx.load(path).function()
        >>> [output.shape for output in function(*arguments)]
        [(4,)]
        """
        values = self._bound((), {**self.zeros(), **(inputs or {})})
        while True:  # each turn makes another input static, or is the last
            static = {name: np.asarray(value) for name, value in zip(self.input_names, values) if name in self._static}
            function = self._program(static).function
            free = [value for name, value in zip(self.input_names, values) if name not in static]
            if texts := [name for name, value in zip(self.input_names, values) if is_text(value)]:
                raise self._error(f"it is not one function of tensors: the input {texts[0]!r} is text")
            try:
                arguments = [mo.asarray(value) for value in free]
                function(*arguments)
                return function, arguments
            except NeedsValue as need:
                if not self._specialised(need, values):
                    raise self._error(f"it is not one function of tensors: {need.what}") from None

    def measure(self, inputs: Mapping[str, Any], repeats: int = 5) -> dict[str, list[float]]:
        """Run the compiled program some times with each step timed; `explain()` shows the times afterwards.

        >>> path = mo.onnx.save(lambda x: mo.exp(x), "exp.onnx", mo.zeros(4))
        >>> network = mo.onnx.load(path)
        >>> sorted(network.measure({"x": mo.zeros(4)}))
        ['measured_s', 'predicted_s']
        """
        values = self._bound((), inputs)
        self._run(values)
        if self.program is None:
            raise self._error(f"it is not one compiled function: {self._reason}")
        free = [value for name, value in zip(self.input_names, values) if name not in self._static]
        return dict(self.program.measure(*free, repeats=repeats))

    def explain(self) -> str:
        """Explain how the last call ran."""
        if self.program is None:
            why = f"since {self._reason}" if self._reason else "it has not been called yet"
            return Page(f"{self.name}: not compiled: {why}")
        return Page(self.program.explain())

    def __repr__(self) -> str:
        return f"<onnx model {self.name}({', '.join(self.input_names)}) -> {', '.join(self.output_names)}>"


def _all_texts(array: np.ndarray[Any, Any]) -> bool:
    return all(isinstance(item, str | bytes) for item in array.reshape(-1).tolist())


def _in_declared_type(given: Any, array: np.ndarray[Any, Any], kind: TypeInfo | None) -> Any:
    """Python numbers and lists take the declared type; arrays are taken as they are."""
    if isinstance(given, np.ndarray | np.generic) or kind is None or not kind.element:
        return array
    dtype = element_type(kind.element).dtype
    if dtype is None or dtype is mo.bfloat16 or array.dtype.kind not in "biuf":
        return array
    wide = array.astype(dtype.numpy)
    return wide if dtype.is_float or np.array_equal(wide, array) else array


def _encoded(output: Any) -> Any:
    """An output as a tree of tensors, which is what compiled functions return."""
    if isinstance(output, Coded):
        return {f"{CODED}{output.kind.code}": tensor(output.codes)}
    if isinstance(output, list):
        return [_encoded(item) for item in output]
    if output is EMPTY or output is None or is_text(output):
        raise NeedsValue(output, "an output is a text or an optional")
    return tensor(output)


def _decoded(result: Any) -> Any:
    if isinstance(result, dict):
        (name, codes), = result.items()
        return Coded(codes, element_type(int(name.removeprefix(CODED))))
    return [_decoded(item) for item in result] if isinstance(result, list) else result

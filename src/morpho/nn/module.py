"""`Module`: a tree of tensors with a function. Attributes that are parameters, buffers, modules, or lists, tuples and
dicts of those, are the tree; saving, counting, freezing and converting are walks over it.

>>> class Net(mo.nn.Module):
...     def __init__(self):
...         self.hidden, self.out = mo.nn.Linear(4, 8), mo.nn.Linear(8, 2)
...     def forward(self, x):
...         return self.out(mo.relu(self.hidden(x)))
>>> net = Net()
>>> [name for name, _ in net.named_parameters()]
['hidden.weight', 'hidden.bias', 'out.weight', 'out.bias']
>>> net(mo.ones((3, 4))).shape
(3, 2)
"""

from __future__ import annotations

import difflib
import html
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import morpho as mo
from morpho.backends.registry import holder
from morpho.base.dtypes import BY_NAME, as_dtype
from morpho.base.errors import ArgumentError, DTypeError, fail
from morpho.base.settings import device_kinds
from morpho.nn.layer_notes import note_layer
from morpho.nn.summary import summary
from morpho.tensor.functions.products.rounded import RoundedWeight
from morpho.tensor.jit.native.entries import entries
from morpho.tensor.state.state import assign
from morpho.tensor.state.trace import current_trace
from morpho.tensor.state.variable import Buffer, Parameter, Variable
from morpho.tensor.tools.foreign_calls import hinted, refused
from morpho.tensor.tools.foreign_names import missing

Self = TypeVar("Self", bound="Module")
Hook = Callable[["Module", tuple[Any, ...], Any], Any]
PreHook = Callable[["Module", tuple[Any, ...]], Any]
NOT_IN_THE_TREE = ("_training", "_hooks", "_pre_hooks")


class Signatures:
    """Signature of a module, for `inspect.signature` and `mo.compile(module, dynamic={"x": ...})`: what `forward`
    does. Of the class it is what makes one, by its `__init__` unless it is given."""

    def __init__(self, making: inspect.Signature | None = None) -> None:
        self.making = making

    def __get__(self, module: Module | None, owner: type[Module]) -> inspect.Signature:
        if module is not None:
            return inspect.signature(module.forward)
        if self.making is None:
            raise AttributeError("__signature__")
        return self.making


class IncompatibleKeys(NamedTuple):
    """Names that `load_state_dict` did not match: the module's without a value, and values without a place."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not any(self):
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"

    def __str__(self) -> str:
        return repr(self)


class Module:
    """A layer or a model. Write `forward`; call the module. No `super().__init__()` is needed.

    >>> class Twice(mo.nn.Module):
    ...     def __init__(self, width):
    ...         self.layer = mo.nn.Linear(width, width)
    ...     def forward(self, x):
    ...         return self.layer(self.layer(x))
    >>> model = Twice(4)
    >>> model(mo.ones((2, 4))).shape, [name for name, _ in model.named_parameters()]
    ((2, 4), ['layer.weight', 'layer.bias'])
    """

    __signature__ = Signatures()
    tells_changes = True  # of `static_key`: compiled functions need not ask at every call
    _training = True
    _hooks: tuple[Hook, ...] = ()
    _pre_hooks: tuple[PreHook, ...] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            name = type(self).__name__
            given = any(isinstance(arg, mo.Tensor) for arg in args)
            raise fail(ArgumentError, name, "the module is made without arguments",
                       f"write {name}()(x) to call one" if given else f"write {name}()")

    def __init_subclass__(cls, **others: Any) -> None:
        """Morpho's own layers answer for arguments that they do not take."""
        super().__init_subclass__(**others)
        if cls.__module__.startswith("morpho.") and "__init__" in vars(cls):
            cls.__init__ = hinted(cls.__init__)  # type: ignore[method-assign]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's result."""
        raise fail(ArgumentError, type(self).__name__, "the module has no forward()", "define forward(self, ...)")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:  # which costs nothing until something is raised
            for before in self._pre_hooks:
                changed = before(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
            result = self.forward(*args, **kwargs)
            for hook in self._hooks:
                answer = hook(self, args, result)
                result = result if answer is None else answer
            return result
        except Exception as error:
            refusal = refused(error, self.forward, args, kwargs, type(self).__name__)
            note_layer(refusal or error, self)
            if refusal is None:
                raise
            raise refusal from None

    def __setattr__(self, name: str, value: Any) -> None:
        held = self.__dict__.get(name)
        if isinstance(held, Variable) and value is not None and not isinstance(value, (Variable, Module)):
            kind = "a plain tensor" if isinstance(value, mo.Tensor) else f"a value of type {type(value).__name__}"
            raise fail(ArgumentError, type(self).__name__, f"{name} is a {type(held).__name__} and is given {kind}",
                       f"write self.{name}.assign(...) to change its value")
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        # Only what is not there comes here; layers are named by their users, so a slip is likely.
        known = [key for key in vars(self) if not key.startswith("_")]
        near = difflib.get_close_matches(name, known, 1)
        if not near:
            raise missing("Module", name, self, type(self).__name__)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}. Hint: there is {near[0]!r}.")

    # -- the tree --------------------------------------------------------------------------------------------------
    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all below it, each once, with dotted names."""
        seen: set[int] = set()
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            name, module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield name, module
            stack += reversed([(_join(name, key), child) for key, child in _members(vars(module), Module)])

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly below."""
        return _members(vars(self), Module)

    def children(self) -> Iterator[Module]:
        return (module for _, module in self.named_children())

    def _variables(self, kind: type) -> Iterator[tuple[str, Any]]:
        """Every variable of a kind, each once: what two modules share goes by its first name."""
        seen: set[int] = set()
        for name, variable in self._every_name(kind):
            if id(variable) not in seen:
                seen.add(id(variable))
                yield name, variable

    def _every_name(self, kind: type) -> Iterator[tuple[str, Any]]:
        """Every variable of a kind, what is shared under each of its names."""
        stack: list[tuple[str, Module]] = [("", self)]
        while stack:
            name, module = stack.pop()
            yield from ((_join(name, key), variable) for key, variable in _members(vars(module), kind))
            stack += reversed([(_join(name, key), child) for key, child in _members(vars(module), Module)])

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Parameters that training changes, with dotted names such as "layers.0.weight"; a shared one under its
        first name."""
        return self._variables(Parameter)

    def parameters(self) -> Iterator[Parameter]:
        return (parameter for _, parameter in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Buffer]]:
        """Tensors that are saved but not trained, with dotted names."""
        return self._variables(Buffer)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Make a tensor, or None, a buffer of this name: saved unless not `persistent`, never trained. The same as
        `self.name = nn.Buffer(tensor, persistent)`.

        >>> layer = mo.nn.Module()
        >>> layer.register_buffer("scale", mo.ones(2), persistent=False)
        >>> [name for name, _ in layer.named_buffers()], list(layer.state_dict())
        (['scale'], [])
        """
        if not isinstance(name, str) or not name or "." in name:
            raise fail(ArgumentError, "register_buffer", f"{name!r} is not a name without dots")
        if (name in vars(self) and not isinstance(vars(self)[name], Buffer | None)) or hasattr(type(self), name):
            raise fail(ArgumentError, "register_buffer", f"{type(self).__name__} has an attribute {name!r} already")
        if tensor is not None and not isinstance(tensor, Buffer):
            tensor = Buffer(tensor, persistent)
        object.__setattr__(self, name, tensor)

    def buffers(self) -> Iterator[Buffer]:
        return (buffer for _, buffer in self.named_buffers())

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call a function on every module of the tree."""
        for module in list(self.modules()):
            fn(module)
        return self

    # -- modes -----------------------------------------------------------------------------------------------------
    @property
    def training(self) -> bool:
        """Whether dropout, batch norm and the like do what they do while training."""
        trace = current_trace()
        if trace is not None:
            trace.assume(self)
        return self._training

    def train(self: Self, mode: bool = True) -> Self:
        """Put the whole tree in training mode, or out of it."""
        changed = False
        for module in self.modules():
            changed |= module._training != mode
            module._training = mode
        if changed:
            entries.forget()  # compiled functions look again whether their program is still the right one
        return self

    def eval(self: Self) -> Self:
        """The whole tree as it is used after training."""
        return self.train(False)

    def static_key(self) -> Any:
        return (id(self), *[module._training for module in self.modules()])

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Train all parameters, or freeze them."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        entries.forget()
        return self

    @hinted
    def zero_grad(self) -> None:
        """Drop all gradients."""
        for parameter in self.parameters():
            parameter.grad = None

    def register_forward_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(module, inputs, result)` after every call; what it returns, if anything, is the result. The handle
        has `remove()`. Compiled functions keep the hooks there were when they were traced."""
        self._hooks = (*self._hooks, hook)
        return RemovableHandle(self, "_hooks", hook)

    def register_forward_pre_hook(self, hook: PreHook) -> RemovableHandle:
        """Call `hook(module, inputs)` before every call; what it returns, if anything, are the inputs. The handle has
        `remove()`."""
        self._pre_hooks = (*self._pre_hooks, hook)
        return RemovableHandle(self, "_pre_hooks", hook)

    # -- values ----------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, mo.Tensor]:
        """The values of all parameters and buffers by name, as they are now; shared ones once, under their first name,
        and buffers that are not `persistent` not at all."""
        return {name: variable.value for name, variable in self._variables(Variable) if _is_saved(variable)}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Put in values by name; one that is shared may come under any of its names. Missing, extra (unless not
        `strict`) and mis-shaped names are one error, and nothing is changed then. What is not `strict` may also lack
        names. The result lists the names that the file lacks and those that only it has."""
        if not isinstance(state_dict, Mapping):
            raise fail(ArgumentError, "load_state_dict", f"{type(state_dict).__name__} holds no tensors by name",
                       "read a file with mo.weights.load(path); another model has state_dict()")
        own = {name: variable for name, variable in self._variables(Variable) if _is_saved(variable)}
        first = {id(variable): name for name, variable in own.items()}
        names = {name: first[id(variable)] for name, variable in self._every_name(Variable) if id(variable) in first}
        tensors = {names[name]: mo.asarray(state_dict[name]) for name in reversed(names) if name in state_dict}
        extra = [name for name in state_dict if name not in names]
        problems = _differences(own, tensors, extra, strict)
        if problems:
            raise fail(ArgumentError, "load_state_dict", "; ".join(problems))
        if tensors:
            assign([(own[name].state, _like(tensor, own[name].value)) for name, tensor in tensors.items()])
        return IncompatibleKeys([name for name in own if name not in tensors], extra)

    def to(self: Self, *wanted: Any, device: Any = None, dtype: Any = None) -> Self:
        """Put the module on another device, into another floating-point dtype, or both: `model.to("cuda:0")`. In place,
        like PyTorch's; make the optimiser afterwards.

        >>> mo.nn.Linear(2, 3).to("cpu").weight.device
        'cpu'
        """
        for one in wanted:
            if isinstance(one, str) and one.partition(":")[0] in device_kinds:
                device = one
            else:
                dtype = one
                self._must_be_dtype(one)
        if device is not None:
            place = holder(device, "to")
            for _, variable in self._variables(Variable):
                variable.state.move(place)
            moved: dict[int, Any] = {}  # by identity: a table that two modules share is one there too
            for _, module in list(self.named_modules()):  # tables such as those of positions, and packed weights
                for name, value in list(vars(module).items()):
                    if type(value) is mo.Tensor or isinstance(value, mo.Quantised | RoundedWeight):
                        if id(value) not in moved:
                            moved[id(value)] = value, value.to(device)  # the old one is held: its number stays its own
                        setattr(module, name, moved[id(value)][1])
            entries.forget()
        return self if dtype is None else self.astype(dtype)

    def _must_be_dtype(self, given: Any) -> None:
        """Explain `to("gpu")`: a dtype is expected here."""
        try:
            as_dtype(given)
        except DTypeError:
            raise fail(DTypeError, type(self).__name__, f"{given!r} is neither a device nor a dtype",
                       f"devices are {', '.join(device_kinds)}; dtypes are {', '.join(BY_NAME)}") from None

    def astype(self: Self, dtype: Any) -> Self:
        """Convert all float parameters and buffers."""
        kind = mo.asarray(0.0).astype(dtype).dtype
        for _, module in list(self.named_modules()):
            for _, variable in _members(vars(module), Variable):
                if variable.dtype.is_float and variable.dtype is not kind:
                    before, variable.state = variable.state, mo.State(variable.value.astype(kind))
                    before.leave()
        entries.forget()
        return self

    def float(self: Self) -> Self:
        return self.astype("float32")

    def double(self: Self) -> Self:
        return self.astype("float64")

    def half(self: Self) -> Self:
        return self.astype("float16")

    def bfloat16(self: Self) -> Self:
        return self.astype("bfloat16")

    def type(self: Self, dst_type: Any) -> Self:
        return self.astype(dst_type)

    def cpu(self: Self) -> Self:
        return self.to("cpu")

    def cuda(self: Self, device: Any = None) -> Self:
        return self.to("cuda" if device is None else device)

    # -- by names, as PyTorch's modules have it ------------------------------------------------------------------------
    def register_parameter(self, name: str, param: Any) -> None:
        """Make a parameter, or None, an attribute."""
        object.__setattr__(self, name, param)

    def add_module(self, name: str, module: Module | None) -> None:
        """Make a module an attribute; names may be numbers, as in Sequential."""
        object.__setattr__(self, name, module)

    register_module = add_module

    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name; "" is this one."""
        return self._by_name(target, dict(self.named_modules())) if target else self

    def get_parameter(self, target: str) -> Any:
        """The parameter of a dotted name."""
        return self._by_name(target, dict(self._every_name(Parameter)))

    def get_buffer(self, target: str) -> Any:
        """The buffer of a dotted name."""
        return self._by_name(target, dict(self._every_name(Buffer)))

    def _by_name(self, target: str, known: dict[str, Any]) -> Any:
        if target not in known:
            raise AttributeError(f"{type(self).__name__} has no {target!r}")
        return known[target]

    # -- looking ---------------------------------------------------------------------------------------------------
    def parameter_count(self) -> int:
        """Numbers that training changes."""
        return sum(int(parameter.size) for parameter in self.parameters())

    def summary(self, *inputs: Any) -> str:
        """A table of modules with their parameters' shapes and counts; for `inputs`, tensors or their shapes, also the
        shapes that each module gives. Nothing is computed.

        >>> print(mo.nn.Sequential(mo.nn.Linear(4, 2), mo.nn.ReLU()).summary((8, 4)))
        module  kind        output  shapes      parameters
        (self)  Sequential  (8,2)                        0
        0       Linear      (8,2)   (2,4) (2,)          10
        1       ReLU        (8,2)                        0
        total                                           10
        """
        return summary(self, inputs)

    def describe(self) -> str:
        """The module's own settings, for its line in `repr`."""
        return ""

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}({self.describe()})"]
        for name, child in self.named_children():
            first, *rest = repr(child).split("\n")
            lines += [f"  {name}: {first}", *[f"  {line}" for line in rest]]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The tree, whose branches open; with the parameters of each."""
        count = f"{sum(parameter.size for parameter in self.parameters()):,} parameters"
        label = f"<code>{html.escape(f'{type(self).__name__}({self.describe()})')}</code> <small>{count}</small>"
        rows = [f"<li>{html.escape(name)}: {child._repr_html_()}</li>" for name, child in self.named_children()]
        return f"<details open><summary>{label}</summary><ul>{''.join(rows)}</ul></details>" if rows else label


class RemovableHandle:
    """A hook that was registered; `remove()` takes it off again, and so does the end of a `with` block.

    >>> layer = mo.nn.ReLU()
    >>> handle = layer.register_forward_hook(lambda module, inputs, result: result + 1)
    >>> one = layer(mo.zeros(1)).item(); handle.remove(); one, layer(mo.zeros(1)).item()
    (1.0, 0.0)
    """

    def __init__(self, module: Module, kind: str, hook: Callable[..., Any]) -> None:
        self._module, self._kind, self._hook = module, kind, hook

    def remove(self) -> None:
        """Take the hook off; a second time nothing happens."""
        hooks = tuple(hook for hook in getattr(self._module, self._kind) if hook is not self._hook)
        setattr(self._module, self._kind, hooks)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _is_saved(variable: Variable) -> bool:
    return not isinstance(variable, Buffer) or variable.persistent


def _members(tree: Any, kind: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Things of a kind among attributes, lists, tuples and dicts, with dotted names; modules are not looked into."""
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    for key, value in items:
        if not prefix and key in NOT_IN_THE_TREE:
            continue
        name = _join(prefix, str(key))
        if isinstance(value, kind):
            yield name, value
        elif isinstance(value, list | tuple | dict):
            yield from _members(value, kind, name)


def _like(tensor: mo.Tensor, held: mo.Tensor) -> mo.Tensor:
    """A tensor in the dtype and on the device of another; itself, where it is: that is copied without a program."""
    tensor = tensor if tensor.dtype is held.dtype else tensor.astype(held.dtype)
    return tensor if tensor.device == held.device else tensor.to(held.device)


def _differences(own: Mapping[str, Variable], given: Mapping[str, mo.Tensor], extra: list[str],
                 strict: bool) -> list[str]:
    missing = [name for name in own if name not in given] if strict else []
    shapes = [f"{name} is {tuple(tensor.shape)}, wanted {tuple(own[name].shape)}" for name, tensor in given.items()
              if tensor.shape != own[name].shape]
    listed = (("missing", missing), ("unknown", extra if strict else []), ("of another shape", shapes))
    return [f"{len(found)} {what}: " + ", ".join(found[:10]) + (", ..." if len(found) > 10 else "")
            for what, found in listed if found]

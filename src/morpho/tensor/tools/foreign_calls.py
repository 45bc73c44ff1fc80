"""Calls with arguments that a function does not take: those of other libraries' spelling are made in Morpho's words
(`mo.spelling`), others are an error that names what to write.

>>> mo.sum(mo.ones((2, 3)), dim=1)
Tensor([3., 3.], dtype=float32)
>>> mo.exp(mo.ones(3), 1)
Traceback (most recent call last):
morpho.base.errors.ArgumentError: [exp] exp() takes 1 positional argument but 2 were given. At ... it takes (x, /)...

Python binds arguments before a function runs, so that the function cannot answer for itself: `hinted` puts a frame
around it that does nothing until Python refuses a call. Operators and compiled functions have no such frame.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.tensor.recorded import recorded_if_pure

KEYWORDS = {  # another library's keyword -> Morpho's; the first one that the function has
    "dim": ("axis", "axes"), "dims": ("axis", "axes"), "axes": ("axis",), "axis": ("axes", "dim"),
    "keepdim": ("keepdims",),
    "ddof": ("correction",), "unbiased": ("correction",), "a_min": ("min",), "a_max": ("max",), "size": ("shape",),
    "steps": ("num",), "p": ("ord",), "diagonal": ("k",), "pad_width": ("widths",), "pad": ("widths",),
    "constant_values": ("value",), "loc": ("mean",), "scale": ("std",),
    "in_dims": ("in_axes",), "out_dims": ("out_axes",),
    "is_causal": ("causal",), "attn_mask": ("mask",), "fullgraph": ("whole",), "newshape": ("shape",),
    # layers: PyTorch's names, of which it has several for one thing
    "d_model": ("embed_dim",), "nhead": ("num_heads",), "layer_norm_eps": ("eps",), "epsilon": ("eps",),
    "num_key_value_heads": ("num_kv_heads",), "vdim": ("kdim",), "intermediate_size": ("dim_feedforward",),
    "inputs": ("in_features", "in_channels", "input_size"), "outputs": ("out_features", "out_channels"),
    "in_dim": ("in_features",), "out_dim": ("out_features",), "units": ("out_features", "hidden_size"),
    "filters": ("out_channels",), "channels": ("num_features", "num_channels"), "groups": ("num_groups",),
    "count": ("num_embeddings",), "width": ("embed_dim", "embedding_dim", "normalized_shape"),
    "hidden": ("hidden_size", "dim_feedforward", "hidden_features"), "layers": ("num_layers",),
    "heads": ("num_heads",), "kv_heads": ("num_kv_heads",), "depth": ("head_dim",), "memory_width": ("kdim",),
    "slope": ("negative_slope",), "negative_slope": ("slope",), "start": ("start_dim",), "end": ("end_dim",),
    "sizes": ("unflattened_size",), "rate": ("p",),
    # data and training
    "workers": ("num_workers",), "collate": ("collate_fn",), "prefetch": ("prefetch_factor",),
    "parameters": ("params",), "most": ("max_norm", "clip_value"), "warmup": ("warmup_iters",),
    "total": ("total_iters",), "num_warmup_steps": ("warmup_iters",), "num_training_steps": ("total_iters",),
}
PLACES = {  # keywords for what Morpho's functions take by place, and which place that is
    **dict.fromkeys(("input", "self", "a", "x", "x1", "array", "arr", "tensor", "tensors", "arrays", "object", "obj",
                     "data"), 0),
    **dict.fromkeys(("other", "b", "y", "x2", "index", "indices", "mat2", "vec2", "target"), 1),
}
LEAVE_OUT = {  # keywords for what is not chosen here
    "device": "it follows its arguments, or `with mo.device(name):`", "device_type": "the device follows the tensors",
    "requires_grad": "call requires_grad_() on the result, or use mo.nn.Parameter",
    "out": "a result is a new tensor; functions made by mo.compile take out=", "inplace": "tensors are values",
    "set_to_none": "gradients are always dropped", "pin_memory": "mo.pin(array) is a copy in pinned memory",
    "non_blocking": "copies are queued and run in order", "memory_format": "the engine sees to the layout",
    "persistent_workers": "workers are threads, and start at once", "order": "the engine sees to the layout",
    "alpha": "multiply before",
}
# PyTorch's modules take boolean masks that are True where nothing may be looked at, its function
# scaled_dot_product_attention, as everything here, ones that are True where something may be.
_OPPOSITE = "True is where a query may look, the opposite of PyTorch's modules"
OPPOSITE = {  # keyword -> what to write instead, (batch, keys) with axes for heads and queries put in between
    "attn_mask": f"write mask=~attn_mask: {_OPPOSITE}", "src_mask": f"write mask=~src_mask: {_OPPOSITE}",
    "tgt_mask": f"write mask=~tgt_mask: {_OPPOSITE}", "memory_mask": f"write memory_mask=~memory_mask: {_OPPOSITE}",
    **{f"{which}key_padding_mask": f"write {own}=~{which}key_padding_mask[:, None, None, :]: {_OPPOSITE}"
       for which, own in (("", "mask"), ("src_", "mask"), ("tgt_", "mask"), ("memory_", "memory_mask"))},
}
LEAVE_OUT_OF = {  # the same by the function
    ("vmap", "randomness"): "a key of the surroundings draws the same for every row; give each row one of "
                            "mo.random.split(key, n)",
    ("vmap", "axis_name"): "reduce over the rows outside",
    ("vmap", "axis_size"): "it is that of the arguments",
    ("compile", "mode"): "mo.settings(level=...) chooses how much is optimised",
}


part_arguments: list[Callable[[Any, int, str], Callable[[], None] | None]] = []  # `parts.begin`, which is above


@functools.cache  # mo.matmul is mo.linalg.matmul
def hinted(function: Callable[..., Any]) -> Any:
    """The same function; a call that Python refuses is an `ArgumentError` that says what to write instead."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except TypeError as error:
            if not is_refusal(error, function, args, options):
                raise
        # Outside of `except`: an error of the second call has nothing to do with the first.
        finish = None
        if "out" in options:
            finish = part_arguments[0](options["out"], sys.getrefcount(options["out"]), "option")
        count = sys.getrefcount(args[-1]) + 1 if args else 0
        if (spelled := respelled(function, args, options)) is not None:
            if args and getattr(spelled, "extras", {}).get("out") is args[-1]:
                finish = part_arguments[0](args[-1], count, "argument")
            result = spelled.run()
            if finish is not None:
                finish()
            return result
        raise refusal_of(function, args, options)

    call.is_hinted = True  # type: ignore[attr-defined]  # another module may show it too
    return call


def hint_calls(namespace: dict[str, Any], names: Collection[str]) -> None:
    """Have the functions of a module, of these names, answer calls that Python refuses, and record the others."""
    for name in names:
        if isinstance(found := namespace.get(name), FunctionType):
            namespace[name] = made = found if hasattr(found, "is_hinted") else hinted(recorded_if_pure(found))
            if name == made.__name__ or made.__name__ not in names:  # where pickle finds this one
                made.__module__, made.__qualname__ = namespace["__name__"], name


_BINARY = """
add subtract multiply divide floor_divide remainder pow maximum minimum fmax fmin logical_and logical_or logical_xor
bitwise_and bitwise_or bitwise_xor hypot logaddexp gcd lcm atan2 equal not_equal less less_equal greater greater_equal
bitwise_left_shift bitwise_right_shift copysign nextafter heaviside fmod ldexp
"""
_UNARY = """
negative abs sqrt square exp log sin cos tan tanh sign floor ceil reciprocal logical_not bitwise_invert
"""
UFUNC_METHODS = ("reduce", "accumulate", "outer", "at", "reduceat")
ufunc_methods: list[Callable[[str, str], Callable[..., Any]]] = []  # of `mo.spelling`, by method and function


_INPUTS = {**dict.fromkeys(_BINARY.split(), 2), **dict.fromkeys(_UNARY.split(), 1)}


def add_ufunc_methods(namespace: Mapping[str, Any], names: Collection[str] = _INPUTS.keys()) -> None:
    """Put NumPy's methods of ufuncs on the functions that have them; what they call is loaded at the first call."""
    for name in names:
        function, inputs = namespace.get(name), _INPUTS.get(name)
        if function is None or inputs is None:
            continue
        function.nin, function.nout, function.nargs = inputs, 1, inputs + 1
        for kind in UFUNC_METHODS if inputs == 2 else ("at",):
            setattr(function, kind, functools.partial(_ufunc_method, kind, name))


def _ufunc_method(kind: str, name: str, /, *args: Any, **options: Any) -> Any:
    finish = part_arguments[0](args[0], sys.getrefcount(args[0]), "partial") if kind == "at" and args else None
    result = ufunc_methods[0](kind, name)(*args, **options)
    if finish is not None:
        finish()
    return result


keyless_draws: list[Callable[[str, Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], Any]] = []


def accept_keyless(namespace: dict[str, Any], names: Collection[str]) -> None:
    """Have functions of `mo.random` answer NumPy's calls, which have no key, from the stream of `mo.manual_seed`."""
    for name in names:
        namespace[name] = _keyless(name, namespace[name])


def _keyless(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if "key" in options or (args and getattr(args[0], "dtype", None) == "uint32") or not keyless_draws:
            return function(*args, **options)
        return keyless_draws[0](name, function, args, options)

    return call


respellings: list[Callable[[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], Any]] = []  # of `mo.spelling`


def respelled(function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """The call in Morpho's words, with a `run()`, where it is one in NumPy's or PyTorch's; else None."""
    for respelling in respellings:
        if (spelled := respelling(function, args, options)) is not None:
            return spelled
    return None


def is_refusal(error: Exception, function: Callable[..., Any], args: tuple[Any, ...],
               options: Mapping[str, Any]) -> bool:
    """Whether an error of `function(*args, **options)` says that the function does not take these arguments. To be
    asked in the frame that made the call."""
    if type(error) is not TypeError or _frames(error) > 1 + _wrappers(function):
        return False  # something that the function ran has raised it
    try:
        signature_of(function).bind(*args, **options)
    except TypeError:
        return True
    except ValueError:
        return False  # not a function of Python's own
    return False


@functools.lru_cache(maxsize=4096)
def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def refusal_of(function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any],
               name: str = "") -> Exception:
    """The error for a call that the function does not take."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **options)
    except TypeError as reason:
        own = type(args[0]).__name__ if function.__name__ == "__init__" and args else function.__name__
        return _refusal(name or own, signature, args, options, str(reason))
    raise AssertionError("the call is taken")


def refused(error: Exception, function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any],
            name: str = "") -> Exception | None:
    """Error to raise if `function(*args, **options)` failed because it does not take these
    arguments; None for any other error. To be asked in the frame that made the call."""
    if type(error) is not TypeError or _frames(error) > 1 + _wrappers(function):
        return None  # something that the function ran has raised it
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None  # not a function of Python's own
    try:
        signature.bind(*args, **options)
    except TypeError:
        return refusal_of(function, args, options, name)
    return None


_RECORDERS = tuple(str(Path(__file__).parents[1] / name) for name in ("recorded.py", "at_once.py"))


def _frames(error: Exception) -> int:
    """Frames that an error has passed, less those that only record the call."""
    count, trace = 0, error.__traceback__
    while trace is not None:
        count, trace = count + (trace.tb_frame.f_code.co_filename not in _RECORDERS), trace.tb_next
    return count


def _wrappers(function: Any) -> int:
    """How many frames a decorated function puts between a call and itself (`functools.wraps`)."""
    count = 0
    while hasattr(function, "__wrapped__"):
        count, function = count + 1, function.__wrapped__
    return count


def _refusal(name: str, signature: inspect.Signature, args: tuple[Any, ...], options: Mapping[str, Any],
             otherwise: str) -> Exception:
    parameters = {key: value for key, value in signature.parameters.items() if key != "self"}
    args = args if len(parameters) == len(signature.parameters) else args[1:]
    taken = "it takes " + str(signature.replace(return_annotation=inspect.Signature.empty, parameters=[
        parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters.values()]))
    kinds = {value.kind for value in parameters.values()}
    unknown = [key for key in options if inspect.Parameter.VAR_KEYWORD not in kinds
               and (key not in parameters or parameters[key].kind is inspect.Parameter.POSITIONAL_ONLY)]
    by_place = [key for key, value in parameters.items()
                if value.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    if unknown:
        text = ", ".join(map(repr, unknown))
        hint = "; ".join([*_instead(name, unknown, parameters, by_place), taken])
        return fail(ArgumentError, name, f"{name}() got an unexpected keyword argument {text}" if len(unknown) == 1 else
                    f"{name}() got unexpected keyword arguments {text}", hint)
    if len(args) > len(by_place) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        hints = filter(None, (_by_name(name, parameters, by_place, args), taken))
        text = (f"{name}() takes {len(by_place)} positional argument{'s' * (len(by_place) != 1)} but {len(args)} "
                f"{'was' if len(args) == 1 else 'were'} given")
        return fail(ArgumentError, name, text, "; ".join(hints))
    return fail(ArgumentError, name, otherwise, taken)


def _instead(name: str, unknown: list[str], parameters: Mapping[str, inspect.Parameter], by_place: list[str],
             ) -> list[str]:
    """Suggested spellings for these keywords."""
    import difflib

    named, placed, others = [], [], []
    for key in unknown:
        if key in OPPOSITE and "mask" in parameters and name != "attention":
            others.append(OPPOSITE[key])
            continue
        place = PLACES.get(key, by_place.index(key) if key in by_place else len(by_place))
        own = next((own for own in KEYWORDS.get(key, ()) if own in parameters), "")
        if not own and place < len(by_place):
            own = by_place[place]
        if own and parameters[own].kind is inspect.Parameter.POSITIONAL_ONLY:
            placed.append(own)
        elif own:
            named.append(f"{own}=...")
        elif key in LEAVE_OUT or (name, key) in LEAVE_OUT_OF:
            others.append(f"leave {key!r} out: {LEAVE_OUT_OF.get((name, key)) or LEAVE_OUT[key]}")
        else:
            named += [f"{near}=..." for near in difflib.get_close_matches(key, parameters, 1)
                      if parameters[near].kind is not inspect.Parameter.POSITIONAL_ONLY]
    return [*([f"write {', '.join(named)}"] if named else []),
            *([f"give {' and '.join(placed)} by place, without a name"] if placed else []), *others]


def _by_name(name: str, parameters: Mapping[str, inspect.Parameter], by_place: list[str], args: tuple[Any, ...]) -> str:
    """Suggestion for arguments that cannot be positional: sizes, and tensors of a list, are one argument; others have
    names."""
    rest = args[max(len(by_place) - 1, 0):]
    if by_place[:2] == ["x", "memory"]:
        return "keys and values are of one tensor: write (query, memory), or (x) alone"
    if by_place[-1:] == ["shape"] and all(type(arg) is int for arg in rest):
        return f"write {name}({'x, ' * (len(by_place) - 1)}{rest})"
    if by_place == ["arrays"] and hasattr(rest[1], "shape"):
        return f"write {name}([{', '.join('abcdefgh'[:len(rest)])}])"
    named = [key for key, value in parameters.items() if value.kind is inspect.Parameter.KEYWORD_ONLY]
    return f"write {named[0]}=..." if named else ""


def unpicklable(what: str, hint: str) -> Callable[[Any, Any], Any]:
    """`__reduce_ex__` of a class: pickle says what to do instead. Copies then need `__copy__` and `__deepcopy__`."""

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        raise fail(ArgumentError, "pickle", f"{what} is not pickled", hint)

    return __reduce_ex__

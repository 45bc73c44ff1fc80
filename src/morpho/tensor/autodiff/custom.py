"""Derivatives of the user's: `mo.custom_gradient`, `mo.custom_vjp`, `mo.custom_jvp`; and none: `mo.stop_gradient`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.base.trees import flatten, unflatten
from morpho.ir.node import Node
from morpho.ops.algebra import cast, zeros_like
from morpho.ops.identity import Derivative, Linear, custom
from morpho.tensor.autodiff.arguments import wanted_positions, with_numbers
from morpho.tensor.autodiff.forward import transposed
from morpho.tensor.autodiff.grad_mode import detached
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor

Tangent = Node | None


def stop_gradient(tree: Any) -> Any:
    """The same values, through which no gradient flows: of a tensor, or of every tensor in a tree.

    >>> mo.grad(lambda x: x * mo.stop_gradient(x))(mo.asarray(3.0)).item()
    3.0
    """
    tensors: list[Any] = []
    structure = flatten(tree, tensors)
    return unflatten(structure, iter([Tensor.of_node(detached(asarray(one).program())) for one in tensors]))


def custom_gradient(function: Callable[..., tuple[Tensor, Callable[[Tensor], Any]]]) -> Callable[..., Tensor]:
    """Decorator: a function that returns its value and the function that gives its gradients.

    The second one takes the gradient of the value and returns those of the arguments, in order: a tensor or None each;
    for a single argument just the tensor.

    >>> @mo.custom_gradient
    ... def clipped(x):
    ...     return x * 1.0, lambda g: mo.clip(g, -1.0, 1.0)
    >>> mo.grad(lambda x: (100 * clipped(x)).sum())(mo.ones(2)).numpy()
    array([1., 1.], dtype=float32)
    """

    @functools.wraps(function)
    def call(*arguments: Any) -> Tensor:
        form = _Form("custom_gradient", arguments)

        def pull(nodes: Sequence[Node], cotangents: Sequence[Tangent]) -> list[Tangent]:
            assert cotangents[0] is not None
            answer = function(*form.trees(nodes))[1](Tensor.of_node(cotangents[0]))
            return form.gradients(answer if isinstance(answer, tuple | list) else (answer,))

        return form.result(function(*form.trees(form.nodes))[0], pull)  # type: ignore[no-any-return]

    return call


def with_derivative(operation: str, value: Tensor, argument: Tensor, pull: Callable[[Tensor, Tensor], Tensor],
                    push: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """A function's value at one argument, with both directions of its derivative: of the argument and a cotangent, and
    of the argument and a tangent."""
    form = _Form(operation, (argument,))

    def linear(rule: Callable[[Tensor, Tensor], Tensor]) -> Linear:
        def call(nodes: Sequence[Node], given: Sequence[Tangent]) -> list[Tangent]:
            if given[0] is None:
                return [None]
            return [rule(Tensor.of_node(nodes[0]), Tensor.of_node(given[0])).program()]

        return call

    return form.result(value, linear(pull), linear(push))  # type: ignore[no-any-return]


def with_slopes(operation: str, value: Tensor, arguments: Sequence[Tensor],
                slopes: Sequence[Callable[..., Tensor] | None]) -> Tensor:
    """An elementwise function's value, with a formula for its slope with respect to each argument (None: no gradient
    flows there). A slope that calls the same function has slopes itself."""
    form = _Form(operation, arguments)

    def at(nodes: Sequence[Node]) -> list[Tensor]:
        return [Tensor.of_node(node) for node in nodes]

    def pull(nodes: Sequence[Node], given: Sequence[Tangent]) -> list[Tangent]:
        if given[0] is None:
            return [None] * len(slopes)
        cotangent = Tensor.of_node(given[0])
        return [None if slope is None else (slope(*at(nodes)) * cotangent).program() for slope in slopes]

    def push(nodes: Sequence[Node], given: Sequence[Tangent]) -> list[Tangent]:
        total: Tensor | None = None
        for slope, tangent in zip(slopes, given, strict=True):
            if slope is not None and tangent is not None:
                part = slope(*at(nodes)) * Tensor.of_node(tangent)
                total = part if total is None else total + part
        return [None if total is None else total.program()]

    return form.result(value, pull, push)  # type: ignore[no-any-return]


class _Form:
    """How the arguments of a function with a derivative of the user's are arranged, and their tensors in one line. The
    derivative is made anew wherever it is wanted, from the arguments there."""

    def __init__(self, operation: str, arguments: Sequence[Any], fixed: Sequence[int] = ()) -> None:
        self.operation, self.fixed = operation, {number: arguments[number] for number in fixed}
        self.nodes: list[Node] = []
        self.structures: list[tuple[Any, int]] = []
        for number, argument in enumerate(arguments):
            if number in self.fixed:
                continue
            leaves: list[Any] = []
            whole = argument if isinstance(argument, tuple | list | dict) else asarray(argument)
            self.structures.append((flatten(with_numbers(whole), leaves), len(leaves)))
            self.nodes += [asarray(leaf).program() for leaf in leaves]

    def arranged(self, nodes: Sequence[Tangent]) -> list[Any]:
        """Nodes arranged like the arguments, with zeros where there are none."""
        items = iter([Tensor.of_node(zeros_like(like) if one is None else one)
                      for one, like in zip(nodes, self.nodes, strict=True)])
        return [unflatten(structure, items) for structure, _ in self.structures]

    def trees(self, nodes: Sequence[Node]) -> list[Any]:
        """Arguments of the function, as trees."""
        items = iter(self.arranged(nodes))
        return [self.fixed[number] if number in self.fixed else next(items)
                for number in range(len(self.fixed) + len(self.structures))]

    def gradients(self, answer: Any) -> list[Tangent]:
        """The gradients that a user's function gave, one for each tensor of the arguments."""
        if not isinstance(answer, tuple | list) or len(answer) != len(self.structures):
            count = len(answer) if isinstance(answer, tuple | list) else 1
            raise fail(ArgumentError, self.operation, f"{count} gradients for {len(self.structures)} arguments",
                       "return a tuple with one for each argument, None for zero")
        found: list[Tangent] = []
        for part, (structure, width) in zip(answer, self.structures, strict=True):
            if part is None:
                found += [None] * width
                continue
            leaves: list[Any] = []
            if flatten(with_numbers(part), leaves) != structure:
                raise fail(ArgumentError, self.operation, "a gradient is not arranged like its argument")
            found += [asarray(leaf).program() for leaf in leaves]
        return [self._checked(part, node) for part, node in zip(found, self.nodes, strict=True)]

    def _checked(self, part: Tangent, node: Node) -> Tangent:
        if part is None or not node.dtype.is_inexact:
            return None
        if part.shape != node.shape:
            raise fail(ShapeError, self.operation, f"a gradient of shape {part.shape} for an argument of {node.shape}")
        return cast(part, node.dtype)

    def result(self, value: Any, pull: Linear | None = None, push: Linear | None = None) -> Any:
        """The value of the function with its derivative, of which either direction follows from the other."""
        leaves: list[Any] = []
        structure = flatten(with_numbers(value), leaves)
        results = [asarray(leaf).program() for leaf in leaves]
        made = custom(results, self.nodes, Derivative(pull or _transposed(push, self.nodes),
                                                      push or _transposed(pull, results)))
        return unflatten(structure, iter([Tensor.of_node(node) for node in made]))


def _transposed(linear: Linear | None, like: Sequence[Node]) -> Linear:
    """The other direction: `linear` takes tangents or cotangents of values like these. Its slope must be the same
    everywhere: at 1, and at 2."""
    assert linear is not None
    specs = [node.spec for node in like]

    def call(nodes: Sequence[Node], given: Sequence[Tangent]) -> list[Tangent]:
        slopes = functools.partial(transposed, linear, nodes, specs, given)
        found = slopes(1)
        if found != slopes(2):  # nodes are interned: equal programs are one object
            raise fail(ArgumentError, "jvp", "a rule for gradients is not linear in the gradient it is given, and has "
                                             "no other direction",
                       "clip or round gradients where they are used, or give a rule with mo.custom_jvp")
        return found

    return call


class _Custom:
    """A function whose derivative the user gives."""

    operation = ""

    def __init__(self, function: Callable[..., Any], nondiff_argnums: int | Sequence[int] = ()) -> None:
        if not callable(function):
            raise fail(ArgumentError, self.operation, f"{type(function).__name__} is not a function")
        self.function, self.fixed = function, tuple(wanted_positions(nondiff_argnums)[0])
        functools.update_wrapper(self, function)  # type: ignore[arg-type]

    def _form(self, arguments: Sequence[Any], named: dict[str, Any], rule: Any, how: str) -> _Form:
        if rule is None:
            name = getattr(self.function, "__name__", "the function")
            raise fail(ArgumentError, self.operation, f"{name} has no rule yet", f"give it one with {name}.{how}")
        if named:
            raise fail(ArgumentError, self.operation, f"argument {next(iter(named))!r} is given by name",
                       "give arguments by position: gradients are returned in their order")
        return _Form(self.operation, arguments, self.fixed)


class custom_vjp(_Custom):
    """Decorator: a function whose gradient two others give, which are set by `f.defvjp(forward, backward)`.

    `forward(*arguments)` returns the result and anything to be kept; `backward(kept, cotangent)` returns a tuple with
    the gradient of each argument, None for zero. Arguments and results may be trees. Those of `nondiff_argnums` are
    passed as they are, also to `backward`, before the rest. Gradients flow to arguments alone, not to what the
    function finds in its surroundings. Forward mode transposes the rule, and `vmap` batches it.

    >>> @mo.custom_vjp
    ... def safe_log(x):
    ...     return mo.log(x)
    >>> safe_log.defvjp(lambda x: (mo.log(x), x), lambda x, g: (g / mo.maximum(x, 0.1),))
    >>> mo.grad(lambda x: safe_log(x))(mo.asarray(0.0)).item()
    10.0
    """

    operation = "custom_vjp"

    def __init__(self, function: Callable[..., Any], nondiff_argnums: int | Sequence[int] = ()) -> None:
        super().__init__(function, nondiff_argnums)
        self._rules: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Set the functions that give the gradient."""
        self._rules = (forward, backward)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        form = self._form(arguments, named, self._rules, "defvjp(forward, backward)")
        assert self._rules is not None
        forward, backward = self._rules
        value = self.function(*form.trees(form.nodes))
        leaves: list[Any] = []
        structure = flatten(with_numbers(value), leaves)
        results = [asarray(leaf).program() for leaf in leaves]

        def pull(nodes: Sequence[Node], cotangents: Sequence[Tangent]) -> list[Tangent]:
            answer = forward(*form.trees(nodes))
            if not isinstance(answer, tuple) or len(answer) != 2:
                raise fail(ArgumentError, "custom_vjp", "the forward rule does not return (result, kept)")
            whole = unflatten(structure, iter([Tensor.of_node(zeros_like(node) if one is None else one)
                                               for one, node in zip(cotangents, results, strict=True)]))
            return form.gradients(backward(*form.fixed.values(), answer[1], whole))

        return form.result(value, pull)


class custom_jvp(_Custom):
    """Decorator: a function whose derivative along tangents another one gives, set by `f.defjvp(rule)`.

    `rule(arguments, tangents)` returns the result and its tangent; it is linear in the tangents, so gradients follow by
    transposing it. Arguments of `nondiff_argnums` are passed before the two tuples.

    >>> @mo.custom_jvp
    ... def halved(x):
    ...     return mo.sin(x)
    >>> @halved.defjvp
    ... def rule(arguments, tangents):
    ...     return mo.sin(arguments[0]), 0.5 * tangents[0]
    >>> mo.grad(lambda x: halved(x))(mo.asarray(1.0)).item()
    0.5
    """

    operation = "custom_jvp"

    def __init__(self, function: Callable[..., Any], nondiff_argnums: int | Sequence[int] = ()) -> None:
        super().__init__(function, nondiff_argnums)
        self._rule: Callable[..., Any] | None = None

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule; also a decorator."""
        self._rule = rule
        return rule

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        form = self._form(arguments, named, self._rule, "defjvp(rule)")
        rule = self._rule
        assert rule is not None
        value = self.function(*form.trees(form.nodes))
        leaves: list[Any] = []
        structure = flatten(with_numbers(value), leaves)
        results = [asarray(leaf).program() for leaf in leaves]

        def push(nodes: Sequence[Node], tangents: Sequence[Tangent]) -> list[Tangent]:
            answer = rule(*form.fixed.values(), tuple(form.arranged(nodes)), tuple(form.arranged(tangents)))
            found: list[Any] = []
            both = isinstance(answer, tuple) and len(answer) == 2
            if not both or flatten(with_numbers(answer[1]), found) != structure:
                raise fail(ArgumentError, "custom_jvp", "the rule does not return (result, tangent), both arranged "
                                                        "like the function's result")
            return [cast(asarray(one).program(), like.dtype) for one, like in zip(found, results, strict=True)]

        return form.result(value, None, push)

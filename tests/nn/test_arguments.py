"""Wrong arguments of layers are refused where the layer is made; an error inside a layer says which one it was."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import nn

WRONG: list[tuple[str, tuple[Any, ...], str]] = [
    ("Linear", ("16", 4), r"in_features='16' is not a positive whole number.*write in_features=16"),
    ("Linear", (16, -4), "out_features=-4 is not"), ("Linear", (0, 4), "in_features=0 is not"),
    ("Linear", (4.0, 4), "in_features=4.0 is not"), ("Linear", (4, True), "out_features=True is not"),
    ("FusedMLP", (4, 0), "hidden_features=0 is not"), ("SwiGLU", (4, "8"), "hidden_features='8'"),
    ("FeedForward", (8, -1), "dim_feedforward=-1"),
    ("Embedding", (0, 2), "num_embeddings=0 is not"), ("Embedding", (5, None), "embedding_dim=None is not"),
    ("LayerNorm", ((4, "5"),), "normalized_shape='5' is not"), ("LayerNorm", (4, "x"), "eps='x' is not a number"),
    ("LayerNorm", (4, -1.0), "eps=-1.0 is not a number of at least 0"),
    ("RMSNorm", (-3,), "normalized_shape=-3 is not"), ("LayerNorm", ((),), "normalized_shape=None is not"),
    ("GroupNorm", (2, "4"), "num_channels='4' is not"), ("GroupNorm", (3, 4), "4 channels are not divisible into 3"),
    ("BatchNorm2d", ("3",), "num_features='3' is not"), ("BatchNorm1d", (3, 1e-5, 2), "momentum=2 does not lie"),
    ("Conv2d", ("3", 4, 3), "in_channels='3' is not"), ("Conv2d", (3, -4, 3), "out_channels=-4 is not"),
    ("Conv2d", (3, 4, "3"), "kernel_size='3' is not made of integers"), ("Conv1d", (3, 4, 3, 0), "stride=0 is not"),
    ("ConvTranspose2d", (3, 4, 3, 1, 0, 0, 0), "groups=0 is not"), ("MaxPool2d", ("2",), "kernel_size='2' is not"),
    ("AvgPool1d", ((2, 2),), r"kernel_size=\(2, 2\) is not 1 numbers"), ("AdaptiveAvgPool2d", (0,), "output_size=0"),
    ("MultiHeadAttention", (8, "2"), "num_heads='2' is not"),
    ("MultiHeadAttention", (8, 3), "not a multiple of 3 heads"),
    ("TransformerBlock", (8, 2, "4"), "dim_feedforward='4' is not"), ("LSTM", (3, 0), "hidden_size=0 is not"),
    ("GRU", ("3", 4), "input_size='3' is not"), ("Dropout", ("0.5",), "p='0.5' is not a number between 0 and 1"),
    ("Dropout2d", (1.5,), "p=1.5 is not"), ("LearnedPositions", ("4", 4), "length='4' is not"),
    ("RotaryPositions", (4.0, 8), "head_dim=4.0 is not"), ("SinusoidalPositions", (3, 5), "the embedding_dim is even"),
    ("KeyValueCache", (1, 2, "8", 4), "length='8' is not"), ("Flatten", ("1",), "start_dim='1' is not a whole number"),
    ("Softmax", ("a",), "dim='a' is not a whole number"), ("LeakyReLU", ("a",), "negative_slope='a' is not a number"),
]


@pytest.mark.parametrize(("layer", "arguments", "text"), WRONG)
def test_a_layer_refuses_wrong_arguments_where_it_is_made(layer: str, arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(mo.errors.ArgumentError, match=rf"^\[{layer}\] .*{text}.*") as caught:
        getattr(nn, layer)(*arguments)
    assert "test_arguments.py" in str(caught.value)


def test_numbers_of_numpy_are_sizes() -> None:
    assert nn.Linear(np.int64(3), np.int32(2))(mo.ones((1, 3))).shape == (1, 2)


def test_attention_wants_a_batch() -> None:
    with pytest.raises(ValueError, match=r"Attention\] shape \(3, 8\) is not \(batch, length, embed_dim\).*x\[None\]"):
        nn.MultiHeadAttention(8, 2)(mo.ones((3, 8)))


class Block(nn.Module):
    """A module with a layer of its own and one in a list."""

    def __init__(self) -> None:
        self.fc1, self.others = nn.Linear(8, 4), [nn.Identity(), nn.Linear(9, 2)]

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return self.others[1](self.fc1(x))


def notes(call: Any) -> list[str]:
    with pytest.raises(ValueError, match=r"^\[Linear\]") as caught:
        call()
    return getattr(caught.value, "__notes__", [])


def test_an_error_names_the_layer_by_its_path() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), Block())
    deep = nn.ModuleDict({"body": model})
    assert notes(lambda: model(mo.ones((2, 4)))) == ['in layer "2.others.1": Linear(9, 2)']
    assert notes(lambda: model(mo.ones((2, 5)))) == ['in layer "0": Linear(4, 8)']
    assert notes(lambda: mo.compile(lambda x: model(x))(mo.ones((2, 5)))) == ['in layer "0": Linear(4, 8)']
    assert notes(lambda: deep["body"](mo.ones((2, 5)))) == ['in layer "0": Linear(4, 8)']
    assert notes(lambda: model[0](mo.ones((2, 5)))) == []  # the line says it


def test_the_note_is_shown_and_stays_one() -> None:
    def hook(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        raise RuntimeError("from a hook")

    model = nn.Sequential(nn.Sequential(nn.Sequential(nn.ReLU())))
    model[0][0][0].register_forward_pre_hook(hook)
    with pytest.raises(RuntimeError) as caught:
        model(mo.ones(3))
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("in layer") == 1 and text.endswith('RuntimeError: from a hook\nin layer "0.0.0": ReLU()\n')


def test_a_module_that_cannot_describe_itself_hides_no_error() -> None:
    class Odd(nn.Module):
        def forward(self, x: Any) -> Any:
            raise RuntimeError("the first")

        def describe(self) -> str:
            return self.nothing

    with pytest.raises(RuntimeError, match="the first") as caught:
        nn.Sequential(Odd())(1)
    assert caught.value.__notes__ == ['in layer "0": Odd']


def test_an_error_of_a_layer_holds_no_model() -> None:
    """It can be sent from a worker process, and a kept one keeps no weights alive."""
    import gc
    import weakref

    model = mo.nn.Sequential(mo.nn.Linear(4, 8), mo.nn.Linear(7, 2))
    alive = weakref.ref(model)
    with pytest.raises(ValueError, match=r"Linear|matmul|7") as caught:
        model(mo.ones((3, 4)))
    error = caught.value.with_traceback(None)
    assert error.__notes__ == ['in layer "1": Linear(7, 2)']
    del model, caught
    gc.collect()
    assert alive() is None
    kind, arguments = vars(error)["_morpho_layer"].__reduce__()
    assert kind(*arguments).path == ""


@pytest.mark.parametrize("value", [np.ones((7, 4), np.float32), [1.0], 2.0, mo.ones((7, 4))], ids=["NumPy's", "list",
                                                                                            "number", "tensor"])
def test_a_parameter_is_not_replaced_by_something_else(value: Any) -> None:
    """It would leave `parameters()` and the state dict without a word."""
    layer = mo.nn.Linear(4, 7)
    with pytest.raises(mo.errors.ArgumentError, match="assign"):
        layer.weight = value
    layer.bias = None  # no bias is a layer's own choice
    layer.weight = mo.nn.Parameter(mo.ones((4, 7)))
    assert len(list(layer.parameters())) == 1


def test_files_and_models_where_weights_are_wanted(tmp_path: Any) -> None:
    model = mo.nn.Linear(2, 1)
    with pytest.raises(mo.errors.ArgumentError, match=r"mo\.weights\.load"):
        model.load_state_dict("model.safetensors")  # type: ignore[arg-type]
    for wrong in ((model.state_dict(), tmp_path / "a.safetensors"), (tmp_path / "a.safetensors", model)):
        with pytest.raises(mo.errors.ArgumentError, match="state_dict"):
            mo.weights.save(*wrong)  # type: ignore[arg-type]

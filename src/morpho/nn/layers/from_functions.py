"""PyTorch's layers that are a function of `mo.nn.functional` with its settings kept: activations, borders, pooling,
dropout of channels, losses. One line of a table each.

>>> mo.nn.Softshrink(0.5)(mo.asarray([1.0, 0.25])).tolist()
[0.5, 0.0]
>>> mo.nn.ZeroPad2d(1)(mo.ones((1, 1, 2, 2))).shape
(1, 1, 4, 4)
"""

from __future__ import annotations

import ast
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn import functional as F
from morpho.nn.losses.modules import Loss, _named
from morpho.nn.module import Module
from morpho.tensor.state.variable import Parameter


class Settings(Module):
    """A function of one or more tensors with settings that are the module's attributes."""

    function: Any = None
    settings: tuple[tuple[str, Any], ...] = ()
    trains = False  # whether the function is told of the mode

    def __init__(self, *args: Any, **options: Any) -> None:
        names, kind = [name for name, _ in self.settings], type(self).__name__
        if len(args) > len(names):
            raise fail(ArgumentError, kind,
                       f"{kind}() takes {len(names)} positional arguments but {len(args)} were given")
        given = dict(zip(names, args, strict=False))
        unknown = [name for name in options if name not in names or name in given]
        if unknown:
            raise fail(ArgumentError, kind, f"there is no argument {unknown[0]!r}, or it is there twice",
                       "there are " + ", ".join(names))
        for name, plain in self.settings:
            value = given.get(name, options.get(name, plain))
            if value is ...:
                raise fail(ArgumentError, kind, f"missing a required argument: {name!r}")
            setattr(self, name, value)

    def forward(self, *inputs: Any) -> Any:
        options = {name: getattr(self, name) for name, _ in self.settings}
        if self.trains:
            options["training"] = self.training
        return type(self).function(*inputs, **options)

    def describe(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name, _ in self.settings if name != "inplace")


# class: function(settings); "..." is a setting that must be given, ! a function that is told of the mode
_TABLE = """
CELU: celu(alpha=1.0, inplace=False)
Hardshrink: hardshrink(lambd=0.5)
Hardtanh: hardtanh(min_val=-1.0, max_val=1.0, inplace=False)
Softmin: softmin(dim=-1)
Softshrink: softshrink(lambd=0.5)
Softsign: softsign()
Tanhshrink: tanhshrink()
Threshold: threshold(threshold=..., value=..., inplace=False)
RReLU: !rrelu(lower=0.125, upper=0.3333333333333333, inplace=False)
AlphaDropout: !alpha_dropout(p=0.5, inplace=False)
FeatureAlphaDropout: !feature_alpha_dropout(p=0.5, inplace=False)
Dropout1d: !dropout1d(p=0.5, inplace=False)
Dropout3d: !dropout3d(p=0.5, inplace=False)
AdaptiveAvgPool3d: adaptive_avg_pool3d(output_size=...)
AdaptiveMaxPool3d: adaptive_max_pool3d(output_size=..., return_indices=False)
LPPool1d: lp_pool1d(norm_type=..., kernel_size=..., stride=None, ceil_mode=False)
LPPool2d: lp_pool2d(norm_type=..., kernel_size=..., stride=None, ceil_mode=False)
LPPool3d: lp_pool3d(norm_type=..., kernel_size=..., stride=None, ceil_mode=False)
MaxUnpool1d: max_unpool1d(kernel_size=..., stride=None, padding=0)
MaxUnpool2d: max_unpool2d(kernel_size=..., stride=None, padding=0)
MaxUnpool3d: max_unpool3d(kernel_size=..., stride=None, padding=0)
MaxPool3d: max_pool3d(kernel_size=..., stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False)
AvgPool3d: avg_pool3d(kernel_size=..., stride=None, padding=0, ceil_mode=False, count_include_pad=True)
LocalResponseNorm: local_response_norm(size=..., alpha=0.0001, beta=0.75, k=1.0)
CrossMapLRN2d: local_response_norm(size=..., alpha=0.0001, beta=0.75, k=1.0)
PixelShuffle: pixel_shuffle(upscale_factor=...)
PixelUnshuffle: pixel_unshuffle(downscale_factor=...)
ChannelShuffle: channel_shuffle(groups=...)
Fold: fold(output_size=..., kernel_size=..., dilation=1, padding=0, stride=1)
Unfold: unfold(kernel_size=..., dilation=1, padding=0, stride=1)
UpsamplingNearest2d: upsample_nearest(size=None, scale_factor=None)
UpsamplingBilinear2d: upsample_bilinear(size=None, scale_factor=None)
CosineSimilarity: cosine_similarity(dim=1, eps=1e-08)
PairwiseDistance: pairwise_distance(p=2.0, eps=1e-06, keepdim=False)
"""
_LOSSES = {"GaussianNLLLoss": ("gaussian_nll_loss", 3), "PoissonNLLLoss": ("poisson_nll_loss", 2),
           "SoftMarginLoss": ("soft_margin_loss", 2), "MultiLabelMarginLoss": ("multilabel_margin_loss", 2),
           "MultiLabelSoftMarginLoss": ("multilabel_soft_margin_loss", 2),
           "TripletMarginWithDistanceLoss": ("triplet_margin_with_distance_loss", 3)}
_BY_PLACE = {"pixel_shuffle", "pixel_unshuffle", "channel_shuffle"}


def _layer(line: str) -> type[Module]:
    name, _, call = line.partition(": ")
    node = ast.parse(call.lstrip("!"), mode="eval").body
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    settings = tuple((one.arg or "", ast.literal_eval(one.value)) for one in node.keywords)
    function = getattr(F, node.func.id)
    if node.func.id in _BY_PLACE:
        plain = function
        function = lambda x, **options: plain(x, *options.values())
    return type(name, (Settings,), {
        "function": staticmethod(function), "settings": settings, "trains": call.startswith("!"),
        "__doc__": f"`mo.nn.functional.{node.func.id}` as a module with its settings.", "__module__": __name__})


class _Border(Module):
    """A border of one number, or of as many as PyTorch's `pad` takes, the last axis first."""

    rank, mode = 1, "constant"

    def __init__(self, padding: Any, value: float = 0.0) -> None:
        self.padding = (int(padding),) * (2 * self.rank) if isinstance(padding, int) else tuple(padding)
        self.value = value

    def forward(self, input: mo.Tensor) -> mo.Tensor:
        return F.pad(input, self.padding, self.mode, self.value if self.mode == "constant" else None)

    def describe(self) -> str:
        return str(self.padding)


_MODES = {"Zero": "constant", "Constant": "constant", "Reflection": "reflect", "Replication": "replicate",
          "Circular": "circular"}
CLASSES: dict[str, type[Module]] = {line.partition(":")[0]: _layer(line) for line in _TABLE.split("\n") if line}
CLASSES |= {f"{kind}Pad{rank}d": type(f"{kind}Pad{rank}d", (_Border,), {
    "rank": rank, "mode": mode, "__doc__": f"A border of mode {mode!r}, as `mo.nn.functional.pad` makes it.",
    "__module__": __name__}) for kind, mode in _MODES.items() for rank in (1, 2, 3)}
CLASSES |= {name: _named(name, getattr(F, function), tensors) for name, (function, tensors) in _LOSSES.items()}
CLASSES["NLLLoss2d"] = mo.nn.NLLLoss
assert issubclass(CLASSES["SoftMarginLoss"], Loss)


class Softmax2d(Module):
    """Softmax over the channels of images."""

    def forward(self, input: mo.Tensor) -> mo.Tensor:
        if input.ndim not in (3, 4):
            raise fail(ShapeError, "Softmax2d", f"shape {tuple(input.shape)} is not (N, C, H, W)")
        return mo.softmax(input, axis=-3)


class Bilinear(Module):
    """x1 A x2 + bias with a matrix A for each output; the weight is (out_features, in1_features, in2_features)."""

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True,
                 dtype: Any = mo.float32) -> None:
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        bound = 1 / in1_features ** 0.5
        self.weight = Parameter(mo.nn.init.uniform((out_features, in1_features, in2_features), bound, dtype))
        self.bias = Parameter(mo.nn.init.uniform((out_features,), bound, dtype)) if bias else None

    def forward(self, input1: mo.Tensor, input2: mo.Tensor) -> mo.Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)


class BatchNorm3d(mo.nn.BatchNorm2d):
    """Batch normalisation of volumes x[N, C, D, H, W]; see `BatchNorm2d`."""

    ranks = (5,)


class SyncBatchNorm(mo.nn.BatchNorm2d):
    """Batch normalisation of any number of spatial axes; one process has the whole batch."""

    ranks = (2, 3, 4, 5)


class ConvTranspose3d(Module):
    """The transposed convolution of volumes; the weight is (in_channels, out_channels / groups, KD, KH, KW)."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1,
                 dtype: Any = mo.float32) -> None:
        sizes = (kernel_size,) * 3 if isinstance(kernel_size, int) else tuple(kernel_size)
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.groups, self.dilation = groups, dilation
        shape = (in_channels, out_channels // groups, *sizes)
        self.weight = Parameter(mo.nn.init.kaiming_uniform(shape, dtype=dtype))
        bound = 1 / (shape[1] * sizes[0] * sizes[1] * sizes[2]) ** 0.5
        self.bias = Parameter(mo.nn.init.uniform((out_channels,), bound, dtype)) if bias else None

    def forward(self, input: mo.Tensor) -> mo.Tensor:
        return mo.conv_transpose3d(input, self.weight, self.bias, stride=self.stride, padding=self.padding,
                                   output_padding=self.output_padding, dilation=self.dilation, groups=self.groups)


class ParameterDict(Module):
    """Parameters by name, each under its name in the tree."""

    def __init__(self, parameters: Any = None) -> None:
        for name, value in dict(parameters or {}).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value if isinstance(value, Parameter) else Parameter(value))

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def __delitem__(self, name: str) -> None:
        del vars(self)[name]

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __len__(self) -> int:
        return len(self.keys())

    def __iter__(self) -> Any:
        return iter(self.keys())

    def keys(self) -> list[str]:
        return [name for name, value in vars(self).items() if isinstance(value, Parameter)]

    def values(self) -> list[Any]:
        return [vars(self)[name] for name in self.keys()]

    def items(self) -> list[tuple[str, Any]]:
        return [(name, vars(self)[name]) for name in self.keys()]


class _Lazy(Module):
    """A layer whose number of inputs the first call says."""

    kind: Any = None
    axis = 1

    def __init__(self, *args: Any, **options: Any) -> None:
        object.__setattr__(self, "_made", (args, options))

    def forward(self, input: mo.Tensor, *more: Any, **options: Any) -> Any:
        args, settings = self._made
        layer = type(self).kind(int(input.shape[self.axis]), *args, **settings).train(self._training)
        vars(self).clear()
        object.__setattr__(self, "__class__", type(layer))
        vars(self).update(vars(layer))
        return self(input, *more, **options)


_LAZY = {"LazyLinear": ("Linear", -1), **{f"Lazy{name}": (name, 1) for name in (
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "BatchNorm1d", "BatchNorm2d",
    "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d")}}
_OWN = (Softmax2d, Bilinear, BatchNorm3d, SyncBatchNorm, ConvTranspose3d, ParameterDict)
CLASSES |= {one.__name__: one for one in _OWN}
CLASSES |= {name: type(name, (_Lazy,), {
    "kind": CLASSES.get(kind) or getattr(mo.nn, kind), "axis": axis, "__module__": __name__,
    "__doc__": f"`{kind}` whose number of inputs the first call says: make optimisers after that call."})
    for name, (kind, axis) in _LAZY.items()}

"""ResNet by the names of torchvision's files: `conv1.weight`, `layer1.0.bn1.running_mean`, `fc.weight`, ... Folders of
transformers' ResNetForImageClassification are read too: their settings and names become ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import Model
from morpho.models.config import COMMON, Config
from morpho.models.family import Family, Names, Settings
from morpho.nn import init
from morpho.nn.containers import Sequential
from morpho.nn.layers.batch_norm import BatchNorm2d
from morpho.nn.layers.convolution import Conv2d
from morpho.nn.layers.linear import Linear
from morpho.nn.module import Module
from morpho.weights import Rule, keys
from morpho.weights.keys import KeyTable, Kind, irrelevant, one_of, only, used


@dataclass
class ResNetConfig(Config):
    """The settings of a ResNet: `layers` blocks in each of its stages, "basic" ones of two convolutions or "bottleneck"
    ones of three; `width` channels in the first stage, doubled in each that follows."""

    block: str = "basic"
    layers: list[int] = field(default_factory=lambda: [2, 2, 2, 2])
    width: int = 64
    num_classes: int = 1000
    channels: int = 3
    kinds: ClassVar[Mapping[str, Kind]] = {"block": one_of("basic", "bottleneck")}

    @classmethod
    def of(cls, family: str, config: Mapping[str, Any], *, strict: bool = False, file: str = "",
           ignore: Collection[str] = ()) -> Any:
        if not strict and not LIBRARY_FORM.isdisjoint(config):
            config = _from_library("models.load" if file else "models", file, config, ignore)
        return super().of(family, config, strict=strict, file=file, ignore=ignore)


LIBRARY_FORM = {"depths", "hidden_sizes", "embedding_size", "layer_type"}  # settings that only transformers' files have
_LIBRARY = KeyTable({
    **COMMON, "model_type": used(keys.text()), "num_channels": used(keys.positive(3)),
    "embedding_size": used(keys.positive(64)), "hidden_sizes": used(keys.sizes()), "depths": used(keys.sizes()),
    "layer_type": used(one_of("basic", "bottleneck")), "hidden_act": only("relu"),
    "downsample_in_first_stage": only(False), "downsample_in_bottleneck": only(False),
    "num_labels": used(keys.positive(1000)), "id2label": used(keys.record()),
    **{name: irrelevant("of a backbone") for name in ("out_features", "out_indices", "stage_names")},
})


def _from_library(operation: str, file: str, config: Mapping[str, Any], ignore: Collection[str]) -> dict[str, Any]:
    """The settings of transformers' ResNetForImageClassification as ours; what it may leave out has its defaults."""
    _LIBRARY.check(operation, file, config, ignore=ignore)
    config = {name: value for name, value in config.items() if name not in ignore}
    depths, width = config.get("depths", [3, 4, 6, 3]), config.get("embedding_size", 64)
    block, sizes = config.get("layer_type", "bottleneck"), config.get("hidden_sizes", [256, 512, 1024, 2048])
    expected = [BLOCKS[block].expansion * width << stage for stage in range(len(depths))]
    if sizes != expected:
        raise fail(ArgumentError, operation, f"{file + ': ' if file else ''}hidden_sizes is {sizes}, and only "
                   f"{expected}, which double from stage to stage, are computed with depths of {depths}, an "
                   f"embedding_size of {width} and {block} layers")
    labels = len(config["id2label"]) if "id2label" in config else config.get("num_labels", 2)
    return {"block": block, "layers": depths, "width": width, "num_classes": labels,
            "channels": config.get("num_channels", 3)}


def _normed(inputs: int, outputs: int, size: int, stride: int, dtype: Any) -> tuple[Conv2d, BatchNorm2d]:
    convolution = Conv2d(inputs, outputs, size, stride, size // 2, bias=False, dtype=dtype)
    shape = tuple(int(n) for n in convolution.weight.shape)
    _, fan_out = init.fans(shape)
    convolution.weight.assign(init.normal(shape, (2 / fan_out) ** 0.5, dtype=dtype))
    return convolution, BatchNorm2d(outputs, dtype=dtype)


class BasicBlock(Module):
    """Convolutions with their norms, and the residual, itself through a convolution where the shape changes."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, dtype: Any) -> None:
        outputs = width * self.expansion
        self._parts(inputs, width, stride, dtype)
        changed = stride != 1 or inputs != outputs
        self.downsample = Sequential(*_normed(inputs, outputs, 1, stride, dtype)) if changed else None

    def _parts(self, inputs: int, width: int, stride: int, dtype: Any) -> None:
        self.conv1, self.bn1 = _normed(inputs, width, 3, stride, dtype)
        self.conv2, self.bn2 = _normed(width, width, 3, 1, dtype)

    def _branch(self, x: mo.Tensor) -> mo.Tensor:
        return self.bn2(self.conv2(mo.relu(self.bn1(self.conv1(x)))))  # type: ignore[no-any-return]

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return mo.relu(self._branch(x) + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(BasicBlock):
    """A narrow convolution between two of size 1; the stride is the middle one's."""

    expansion = 4

    def _parts(self, inputs: int, width: int, stride: int, dtype: Any) -> None:
        self.conv1, self.bn1 = _normed(inputs, width, 1, 1, dtype)
        self.conv2, self.bn2 = _normed(width, width, 3, stride, dtype)
        self.conv3, self.bn3 = _normed(width, width * self.expansion, 1, 1, dtype)

    def _branch(self, x: mo.Tensor) -> mo.Tensor:
        y = mo.relu(self.bn2(self.conv2(mo.relu(self.bn1(self.conv1(x))))))
        return self.bn3(self.conv3(y))  # type: ignore[no-any-return]


BLOCKS: dict[str, type[BasicBlock]] = {"basic": BasicBlock, "bottleneck": Bottleneck}


class ResNet(Model):
    """ResNet: images (batch, channels, height, width) -> logits (batch, classes).

    >>> model = mo.models.create("resnet18", width=4, num_classes=10).eval()
    >>> model(mo.zeros((1, 3, 32, 32))).shape
    (1, 10)
    """

    model_type = "resnet"
    config_class = ResNetConfig

    def __init__(self, config: ResNetConfig, dtype: Any = mo.float32) -> None:
        self._configure(config)
        kind, channels = BLOCKS[config.block], config.width
        self.conv1, self.bn1 = _normed(config.channels, channels, 7, 2, dtype)
        for stage, count in enumerate(config.layers):
            width, blocks = config.width << stage, []
            for number in range(count):
                blocks.append(kind(channels, width, 2 if stage and not number else 1, dtype))
                channels = width * kind.expansion
            setattr(self, f"layer{stage + 1}", Sequential(*blocks))
        self.fc = Linear(channels, config.num_classes, True, dtype)

    def features(self, x: mo.Tensor) -> mo.Tensor:
        """Result of the last stage: (batch, channels, height / 32, width / 32)."""
        x = mo.max_pool2d(mo.relu(self.bn1(self.conv1(x))), 3, stride=2, padding=1)
        for stage in range(len(self.config["layers"])):
            x = vars(self)[f"layer{stage + 1}"](x)
        return x

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return self.fc(mo.mean(self.features(x), axis=(2, 3)))  # type: ignore[no-any-return]


SIZES: dict[str, dict[str, Any]] = {
    "resnet18": {},
    "resnet34": {"layers": [3, 4, 6, 3]},
    "resnet50": {"block": "bottleneck", "layers": [3, 4, 6, 3]},
}


def _names(settings: Settings, names: Collection[str]) -> list[Rule]:
    """Files of transformers; torchvision's are named as the model is."""
    parts = {"convolution": "conv", "normalization": "bn"}
    blocks = [(f"layer.{number}", {theirs: f"{ours}{number + 1}" for theirs, ours in parts.items()})
              for number in range(3)]
    blocks.append(("shortcut", {theirs: f"downsample.{number}" for number, theirs in enumerate(parts)}))
    return [
        *(Rule(f"(resnet.)embedder.embedder.{theirs}.{{what}}", f"{ours}1.{{what}}")
          for theirs, ours in parts.items()),
        *(Rule(f"(resnet.)encoder.stages.{stage}.layers.{{i}}.{place}.{theirs}.{{what}}",
               f"layer{stage + 1}.{{i}}.{ours}.{{what}}")
          for stage in range(len(settings["layers"])) for place, both in blocks for theirs, ours in both.items()),
        Rule("classifier.1.{what}", "fc.{what}"),
    ]


FAMILIES = (Family("resnet", ResNet, SIZES, Names(rules=_names)),)

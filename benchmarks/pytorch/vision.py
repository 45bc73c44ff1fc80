"""Four networks for images in plain `torch.nn`, layer for layer those of the papers and of torchvision.

That package has no build for every PyTorch. `PARAMETERS` holds the counts that it documents; the tests compare.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

PARAMETERS = {"resnet18": 11_689_512, "resnet50": 25_557_032, "mobilenet_v3": 2_542_856, "efficientnet": 5_288_548}


def _conv(inner: int, outer: int, size: int, stride: int = 1, groups: int = 1, eps: float = 1e-5,
          activation: Callable[[], nn.Module] | None = None) -> nn.Sequential:
    """Convolution, batch norm, activation."""
    layers = [nn.Conv2d(inner, outer, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outer, eps)]
    return nn.Sequential(*layers, *([activation()] if activation is not None else []))


# -- ResNet ------------------------------------------------------------------------------------------------------------
class Residual(nn.Module):
    """A block of two convolutions, or of three with a narrow one in the middle."""

    def __init__(self, inner: int, width: int, stride: int, expansion: int) -> None:
        super().__init__()
        outer = width * expansion
        self.body = nn.Sequential(
            _conv(inner, width, 3, stride, activation=nn.ReLU), _conv(width, width, 3)) if expansion == 1 else \
            nn.Sequential(_conv(inner, width, 1, activation=nn.ReLU),
                          _conv(width, width, 3, stride, activation=nn.ReLU), _conv(width, outer, 1))
        self.short = _conv(inner, outer, 1, stride) if stride != 1 or inner != outer else nn.Identity()
        self.activation = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.body(x) + self.short(x))


def resnet(depths: tuple[int, ...], expansion: int) -> nn.Module:
    """ResNet-18: `(2, 2, 2, 2), 1`; ResNet-50: `(3, 4, 6, 3), 4`."""
    layers: list[nn.Module] = [_conv(3, 64, 7, 2, activation=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    inner = 64
    for stage, depth in enumerate(depths):
        for number in range(depth):
            width = 64 << stage
            layers.append(Residual(inner, width, 2 if stage and not number else 1, expansion))
            inner = width * expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000))


# -- inverted residuals ------------------------------------------------------------------------------------------------
class Excite(nn.Module):
    """Squeeze and excitation: channels scaled by what their means say."""

    def __init__(self, channels: int, squeezed: int, activation: Callable[[], nn.Module],
                 gate: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.scale = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, squeezed, 1), activation(),
                                   nn.Conv2d(squeezed, channels, 1), gate())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale(x) * x


class Inverted(nn.Module):
    """Widened, convolved channel by channel, excited, narrowed."""

    def __init__(self, inner: int, wide: int, outer: int, size: int, stride: int, eps: float,
                 activation: Callable[[], nn.Module], excite: nn.Module | None) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv(inner, wide, 1, eps=eps, activation=activation)] if wide != inner else []
        layers.append(_conv(wide, wide, size, stride, wide, eps, activation))
        layers += [excite] if excite is not None else []
        self.body = nn.Sequential(*layers, _conv(wide, outer, 1, eps=eps))
        self.adds = stride == 1 and inner == outer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.adds else self.body(x)


def _divisible(value: float) -> int:
    """A multiple of eight near it, not below nine tenths of it."""
    found = max(8, int(value + 4) // 8 * 8)
    return found + 8 if found < 0.9 * value else found


# in, kernel, wide, out, excited, hard swish, stride
_SMALL = ((16, 3, 16, 16, 1, 0, 2), (16, 3, 72, 24, 0, 0, 2), (24, 3, 88, 24, 0, 0, 1), (24, 5, 96, 40, 1, 1, 2),
          (40, 5, 240, 40, 1, 1, 1), (40, 5, 240, 40, 1, 1, 1), (40, 5, 120, 48, 1, 1, 1), (48, 5, 144, 48, 1, 1, 1),
          (48, 5, 288, 96, 1, 1, 2), (96, 5, 576, 96, 1, 1, 1), (96, 5, 576, 96, 1, 1, 1))


def mobilenet_v3() -> nn.Module:
    """MobileNetV3, small."""
    layers: list[nn.Module] = [_conv(3, 16, 3, 2, eps=1e-3, activation=nn.Hardswish)]
    for inner, size, wide, outer, excited, hard, stride in _SMALL:
        excite = Excite(wide, _divisible(wide // 4), nn.ReLU, nn.Hardsigmoid) if excited else None
        layers.append(Inverted(inner, wide, outer, size, stride, 1e-3, nn.Hardswish if hard else nn.ReLU, excite))
    layers += [_conv(96, 576, 1, eps=1e-3, activation=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, 1000))


# widening, kernel, stride, in, out, blocks
_B0 = ((1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3), (6, 5, 1, 80, 112, 3),
       (6, 5, 2, 112, 192, 4), (6, 3, 1, 192, 320, 1))


def efficientnet() -> nn.Module:
    """EfficientNet-B0."""
    layers: list[nn.Module] = [_conv(3, 32, 3, 2, activation=nn.SiLU)]
    for widening, size, stride, first, outer, blocks in _B0:
        for number in range(blocks):
            inner = outer if number else first
            excite = Excite(inner * widening, max(1, inner // 4), nn.SiLU, nn.Sigmoid)
            step = 1 if number else stride
            layers.append(Inverted(inner, inner * widening, outer, size, step, 1e-5, nn.SiLU, excite))
    layers += [_conv(320, 1280, 1, activation=nn.SiLU), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(1280, 1000))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet18": lambda: resnet((2, 2, 2, 2), 1), "resnet50": lambda: resnet((3, 4, 6, 3), 4),
    "mobilenet_v3": mobilenet_v3, "efficientnet": efficientnet}

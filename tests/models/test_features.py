"""Spectrograms and pixels are those of the transformers library's extractors: values that it gave, and the library
itself where it is installed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.models.features.images import resized

TIME = np.arange(20000)
WAVE = (0.3 * np.sin(TIME * 0.05) * np.sin(TIME * 0.0007) + 0.1 * np.cos(TIME * TIME * 1e-6)).astype(np.float32)
MEL = {(0, 0): 1.10116, (3, 10): 1.24726, (17, 50): -0.63194, (79, 124): -0.4193, (20, 125): 0.50375,
       (5, 2999): -0.63194}
Y, X = np.mgrid[:90, :140]
IMAGE = np.stack([(X * 7 + Y * 3) % 256, X * Y % 256, (X * X + Y) % 256], -1).astype(np.uint8)
PLACES = ((0, 0, 0), (1, 100, 50), (2, 223, 223), (0, 111, 200))


def test_spectrograms() -> None:
    found = mo.models.LogMel()(WAVE, sampling_rate=16000)
    assert found.shape == (1, 80, 3000) and found.dtype == np.float32
    assert all(abs(found[0][place] - value) < 3e-5 for place, value in MEL.items())
    assert mo.models.LogMel(128, chunk_length=2)(WAVE[None].repeat(2, 0), 16000).shape == (2, 128, 200)


def test_pixels() -> None:
    for resample, digest in ((2, "d1075d4de2ca423a"), (3, "d32cf2465787aa7c")):
        found = resized(IMAGE, 47, 61, resample)
        assert hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest()[:16] == digest
    clip = mo.models.ImageFeatures()([IMAGE, IMAGE])
    assert clip.shape == (2, 3, 224, 224)
    assert np.abs([clip[1][place] for place in PLACES] - np.array([0.73327, -0.80661, -1.35224, -0.31782])).max() < 1e-5


def test_settings_of_files(tmp_path: Path) -> None:
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({"image_processor_type": "ViTImageProcessor", "do_resize": True, "resample": 2,
                                "size": {"height": 224, "width": 224}, "image_std": [0.5] * 3}))
    found = mo.models.ImageFeatures.from_folder(tmp_path)(IMAGE)[0]
    assert np.abs([found[place] for place in PLACES] - np.array([-1.0, 0.57647, 0.64706, 0.87451])).max() < 1e-5
    for kind, settings, complaint in (
            (mo.models.ImageFeatures, {"resample": 5}, r"resample is 5.*2 \(bilinear\)"),
            (mo.models.ImageFeatures, {"size": {"longest_edge": 3}}, "size is"),
            (mo.models.ImageFeatures, {"do_flip": True}, "do_flip is True, which Morpho does not know"),
            (mo.models.LogMel, {"dither": 0.5}, r"dither is 0\.5, and only"),
            (mo.models.LogMel, {"n_fft": -4}, "n_fft is -4")):
        file.write_text(json.dumps(settings))
        with pytest.raises(ArgumentError, match=complaint):
            kind.from_folder(tmp_path)


def test_what_cannot_be_taken() -> None:
    with pytest.raises(ArgumentError, match="sound of 44100 samples a second is given"):
        mo.models.LogMel()(WAVE, sampling_rate=44100)
    with pytest.raises(ArgumentError, match="divide int16 by 32768"):
        mo.models.LogMel()(np.zeros(16, np.int16), sampling_rate=16000)
    with pytest.raises(ArgumentError, match=r"is not said.*sampling_rate=16000"):
        mo.models.LogMel()(WAVE)
    with pytest.raises(ValueError, match=r"an image of shape \(3, 8, 8\)"):
        mo.models.ImageFeatures()(np.zeros((3, 8, 8), np.uint8))


def test_the_librarys_own_extractors(rng: np.random.Generator) -> None:
    transformers = pytest.importorskip("transformers", reason="the transformers library is the reference here")
    image = pytest.importorskip("PIL.Image", reason="its extractors of images need Pillow")
    sound = (rng.standard_normal(50000) * 0.1).astype(np.float32)
    wanted = transformers.WhisperFeatureExtractor()(sound, sampling_rate=16000, return_tensors="np")["input_features"]
    assert np.abs(mo.models.LogMel()(sound, 16000) - wanted).max() < 5e-5
    for height, width in ((300, 200), (100, 333), (224, 224)):
        picture = rng.integers(0, 256, (height, width, 3), np.uint8)
        wanted = transformers.CLIPImageProcessorPil()(images=image.fromarray(picture), return_tensors="np")
        assert np.abs(mo.models.ImageFeatures()(picture) - wanted["pixel_values"]).max() < 1e-6

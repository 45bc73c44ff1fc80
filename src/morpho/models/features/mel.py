"""Log-mel spectrograms as Whisper takes them, from their definition: a Hann window of 25 ms every 10 ms, the power of
each frequency, triangles of equal area on the mel scale, log10 from the loudest to 8 below, mapped to about -1..1."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.models.files.json_file import read_json
from morpho.weights import keys
from morpho.weights.errors import MissingFile
from morpho.weights.keys import KeyTable, irrelevant, only, used

LINEAR_STEP, KNEE = 200.0 / 3, 1000.0  # below the knee mels are proportional to Hz, above they grow by logarithms
LOG_STEP = np.log(6.4) / 27
_KEYS = KeyTable({
    "feature_extractor_type": only("WhisperFeatureExtractor"), "processor_class": irrelevant("who wrote the file"),
    "feature_size": used(keys.positive(80)), "sampling_rate": used(keys.positive(16000)),
    "hop_length": used(keys.positive(160)), "chunk_length": used(keys.positive(30)), "n_fft": used(keys.positive(400)),
    "padding_value": only(0.0, 0), "padding_side": only("right"), "dither": only(0.0, 0),
    "return_attention_mask": irrelevant("sound has no mask"), "n_samples": irrelevant("chunk_length says it"),
    "nb_max_frames": irrelevant("chunk_length says it"), "mel_filters": irrelevant("computed from the definition"),
    "do_normalize": only(False),
})


@dataclass(frozen=True)
class LogMel:
    """From sound to a log-mel spectrogram; call it with mono samples, (length,) or (batch, length), floats in -1..1.

    >>> mel = mo.models.LogMel(chunk_length=1)
    >>> mel(np.zeros(8000, np.float32), sampling_rate=16000).shape
    (1, 80, 100)
    """

    feature_size: int = 80
    sampling_rate: int = 16000
    hop_length: int = 160
    chunk_length: int = 30  # seconds; sound is cut or filled up to it
    n_fft: int = 400

    @classmethod
    def from_folder(cls, folder: Any, ignore: Collection[str] = ()) -> LogMel:
        """As `preprocessor_config.json` says; every key is used, known not to matter, or an error."""
        file = Path(folder) / "preprocessor_config.json"
        said = read_json(file)
        if said is None:
            raise fail(MissingFile, "LogMel", f"{folder} has no preprocessor_config.json")
        _KEYS.check("LogMel", str(file), said, ignore=ignore)
        return cls(**{name: said[name] for name in cls.__dataclass_fields__ if name in said and name not in ignore})

    def __call__(self, samples: Any, sampling_rate: int | None = None) -> np.ndarray:
        """(batch, mel bins, frames), float32. The rate must be said: sound of another one would be heard as noise."""
        if sampling_rate is None:
            raise fail(ArgumentError, "LogMel", "how many samples a second the sound has is not said",
                       f"write LogMel()(samples, sampling_rate={self.sampling_rate})")
        if sampling_rate != self.sampling_rate:
            raise fail(ArgumentError, "LogMel", f"sound of {sampling_rate} samples a second is given, and the model "
                                                f"takes {self.sampling_rate}", "resample it")
        sound = np.asarray(samples)
        if sound.ndim not in (1, 2) or not sound.size:
            raise fail(ShapeError, "LogMel", f"sound of shape {sound.shape} is not (length,) or (batch, length)",
                       "mix channels to one first")
        if sound.dtype.kind != "f":
            raise fail(ArgumentError, "LogMel", f"samples of {sound.dtype} are given", "floats from -1 to 1 are taken: "
                                                                                       "divide int16 by 32768")
        rows = np.atleast_2d(sound).astype(np.float64)
        count = self.chunk_length * self.sampling_rate
        rows = np.pad(rows[:, :count], ((0, 0), (0, max(0, count - rows.shape[1]))))
        return np.stack([self._of_row(row) for row in rows]).astype(np.float32)

    def _of_row(self, row: np.ndarray) -> np.ndarray:
        around = np.pad(row, self.n_fft // 2, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(around, self.n_fft)[::self.hop_length][:-1]
        window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.n_fft) / self.n_fft)
        power = np.abs(np.fft.rfft(frames * window, axis=1)) ** 2  # (frames, frequencies)
        filters = mel_filters(self.feature_size, self.n_fft, self.sampling_rate)
        found = np.log10(np.maximum(filters @ power.T, 1e-10))
        return np.asarray((np.maximum(found, found.max() - 8.0) + 4.0) / 4.0)


@cache
def mel_filters(count: int, n_fft: int, sampling_rate: int) -> np.ndarray:
    """Triangles on the mel scale, each of the same area: (count, n_fft / 2 + 1), up to half of 16 kHz.

    >>> from morpho.models.features.mel import mel_filters
    >>> mel_filters(80, 400, 16000).shape
    (80, 201)
    """
    top = _mels(np.array(8000.0))
    edges = _hertz(np.linspace(0.0, top, count + 2))
    at = np.linspace(0, sampling_rate / 2, n_fft // 2 + 1)
    up = (at - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - at) / (edges[2:] - edges[1:-1])[:, None]
    return np.asarray(np.maximum(0, np.minimum(up, down)) * (2 / (edges[2:] - edges[:-2]))[:, None])


def _mels(hertz: np.ndarray) -> np.ndarray:
    above = KNEE / LINEAR_STEP + np.log(np.maximum(hertz, KNEE) / KNEE) / LOG_STEP
    return np.where(hertz < KNEE, hertz / LINEAR_STEP, above)


def _hertz(mels: np.ndarray) -> np.ndarray:
    knee = KNEE / LINEAR_STEP
    return np.where(mels < knee, mels * LINEAR_STEP, KNEE * np.exp(LOG_STEP * (np.maximum(mels, knee) - knee)))

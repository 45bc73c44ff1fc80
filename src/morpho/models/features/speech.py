"""Sound in files to text, by a model that listens: reading, other sampling rates, windows, language.

Long sound is cut into windows of the model's length, each at the quietest moment of its last seconds, so that few words
are cut. Every window is transcribed alone.
"""

from __future__ import annotations

import os
import re
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.features.mel import LogMel
from morpho.weights.errors import FileFault, MissingFile

MOST_SECONDS = 24 * 3600
SEARCHED, QUIET = 5.0, 0.2  # seconds at a window's end in which a quiet moment of this length is looked for
PIECE, EDGE = 10, 1  # seconds that are resampled at once, and of their surroundings on both sides
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")


@dataclass(frozen=True)
class Segment:
    """The text of one window, in seconds from the sound's beginning.

    >>> Segment(0.0, 2.5, "hello").text
    'hello'
    """

    start: float
    end: float
    text: str


def read_sound(path: str | os.PathLike[str]) -> tuple[np.ndarray, int]:
    """Samples of a WAV file as mono floats in -1..1, and their rate; FLAC, OGG and MP3 files are read with the
    soundfile library where it is installed."""
    place = Path(path)
    if not place.is_file():
        raise fail(MissingFile, "transcribe", f"there is no file {place}")
    if place.suffix.lower() not in (".wav", ".wave"):
        try:
            import soundfile  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise fail(ArgumentError, "transcribe", f"{place.name} is no WAV file, and there is no soundfile",
                       "pip install soundfile, or convert it: ffmpeg -i FILE -ac 1 -ar 16000 sound.wav") from None
        try:
            samples, rate = soundfile.read(place, dtype="float32", always_2d=True, frames=-1)
        except RuntimeError as error:
            raise fail(FileFault, "transcribe", f"{place.name} cannot be read: {error}") from None
        return _checked(np.asarray(samples).mean(axis=1, dtype=np.float32), int(rate), place)
    try:
        with wave.open(str(place), "rb") as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            if file.getnframes() > MOST_SECONDS * max(rate, 1):
                raise fail(FileFault, "transcribe", f"{place.name} says {file.getnframes()} samples, more than a day")
            raw = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise fail(FileFault, "transcribe", f"{place.name} is no WAV file of whole numbers: {error}",
                   "convert it: ffmpeg -i FILE -ac 1 -ar 16000 -c:a pcm_s16le sound.wav") from None
    raw = raw[:len(raw) // (width * channels) * width * channels]
    if width == 1:
        numbers = (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / 128
    elif width == 3:
        parts = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        numbers = np.ascontiguousarray(np.pad(parts, ((0, 0), (1, 0)))).view("<i4").reshape(-1) / np.float32(1 << 31)
    else:
        numbers = np.frombuffer(raw, f"<i{width}") / np.float32(1 << (8 * width - 1))
    return _checked(numbers.reshape(-1, channels).mean(axis=1, dtype=np.float32), rate, place)


def _checked(samples: np.ndarray, rate: int, place: Path) -> tuple[np.ndarray, int]:
    if not samples.size or rate < 1:
        raise fail(FileFault, "transcribe", f"{place.name} holds no sound")
    return np.ascontiguousarray(samples, np.float32), rate


def resampled(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Sound at another rate: frequencies that both rates have stay as they are.

    >>> import numpy as np
    >>> resampled(np.zeros(8000, np.float32), 8000, 16000).shape
    (16000,)
    """
    if rate == wanted:
        return samples
    edge, step = EDGE * rate, PIECE * rate
    padded = np.pad(samples, (edge, edge + step))
    pieces = []
    for start in range(0, len(samples), step):
        part = padded[start:start + step + 2 * edge]
        count = len(part) * wanted // rate
        spectrum = np.fft.rfft(part)
        shared = min(len(spectrum), count // 2 + 1)
        found = np.fft.irfft(spectrum[:shared], count) * (count / len(part))
        pieces.append(found[EDGE * wanted:EDGE * wanted + PIECE * wanted])
    return np.concatenate(pieces)[:-(-len(samples) * wanted // rate)].astype(np.float32)


def windows_of(samples: np.ndarray, rate: int, seconds: int) -> list[tuple[int, int]]:
    """Where each window begins and ends, in samples.

    >>> import numpy as np
    >>> windows_of(np.zeros(50, np.float32), 10, 5)[-1][1]
    50
    """
    found, start, length, quiet = [], 0, seconds * rate, max(int(QUIET * rate), 1)
    while len(samples) - start > length:
        first = start + length - int(min(SEARCHED, seconds / 2) * rate)
        power = np.cumsum(np.concatenate([[0.0], np.square(samples[first:start + length], dtype=np.float64)]))
        sums = power[quiet:] - power[:-quiet]
        end = first + int(len(sums) - 1 - np.argmin(sums[::-1])) + quiet // 2  # the last of equals
        end = max(end, start + 1)
        found.append((start, end))
        start = end
    return [*found, (start, len(samples))]


def prompt_of(model: Any, tokenizer: Any, features: np.ndarray, language: str, task: str) -> list[int]:
    """The tokens that the decoder begins with: the start, the language (the likeliest where none is named), the task,
    and that there are no times."""
    specials = {**getattr(tokenizer, "added", {}), **tokenizer.specials}
    start = model.config["decoder_start_token_id"]
    languages = {match[1]: number for text, number in specials.items() if (match := _LANGUAGE.fullmatch(text))}
    if task not in ("transcribe", "translate"):
        raise fail(ArgumentError, "transcribe", f"there is no task {task!r}", "transcribe or translate")
    if "<|notimestamps|>" not in specials:
        raise fail(ArgumentError, "transcribe", "the tokenizer has no <|notimestamps|>, which Whisper's have")
    end = [specials["<|notimestamps|>"]]
    if not languages or f"<|{task}|>" not in specials:  # of English alone
        if language not in ("", "en") or task == "translate":
            raise fail(ArgumentError, "transcribe", "this model knows English only, and no translation",
                       "leave out language and task")
        return [start, *end]
    if language and language not in languages:
        raise fail(ArgumentError, "transcribe", f"the model does not know the language {language!r}",
                   "one of " + ", ".join(sorted(languages)))
    if not language:
        with mo.no_grad():
            logits = model(features, mo.asarray([[start]])).numpy()[0, -1]
        language = max(languages, key=lambda name: float(logits[languages[name]]))
    return [start, languages[language], specials[f"<|{task}|>"], *end]


def transcribe(model: Any, tokenizer: Any, samples: np.ndarray, rate: int, *, mel: LogMel | None = None,
               language: str = "", task: str = "transcribe") -> Iterator[Segment]:
    """The text of each window, as it is made.

    Args:
        samples: mono floats in -1..1, of `rate` samples a second; other rates than the model's are resampled.
        mel: the spectrogram; by default one of the model's number of mel bins.
        language: such as "en"; by default the likeliest one of the first window.
        task: "transcribe", or "translate" to English.
    """
    if not hasattr(model, "listen"):
        raise fail(ArgumentError, "transcribe", f"a {type(model).__name__} does not listen", "give a Whisper")
    mel = mel or LogMel(model.config["num_mel_bins"])
    sound = resampled(np.asarray(samples, np.float32), rate, mel.sampling_rate)
    prompt: list[int] = []
    for start, end in windows_of(sound, mel.sampling_rate, mel.chunk_length):
        features = mel(sound[start:end], sampling_rate=mel.sampling_rate)
        prompt = prompt or prompt_of(model, tokenizer, features, language, task)
        text = tokenizer.decode([*model.transcribe(features, prompt)]).strip()
        yield Segment(start / mel.sampling_rate, end / mel.sampling_rate, text)

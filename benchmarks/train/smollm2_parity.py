"""SmolLM2 from its GGUF file, beside the transformers library with the same file: logits and greedy text.

    python benchmarks/train/smollm2_parity.py SmolLM2-135M-Instruct.Q4_1.gguf

Needs torch, transformers, accelerate and gguf. Prints a row for float32, packed and bfloat16 weights: the largest
difference of any logit of the prompts from the library's float32 model, how many of 20 greedy answers are the same
token for token, and for each that is not, where it parts and how far apart the two tokens' logits were there.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo

QUESTIONS = [
    "What is the capital of France?", "Name three primary colours.", "Why is the sky blue?",
    "Write a sentence about a cat.", "What is 7 times 8?", "Who wrote Hamlet?", "Translate 'good morning' to Spanish.",
    "List two uses of water.", "What do bees make?", "How many days are in a leap year?",
    "Give me a synonym for happy.", "What is photosynthesis?", "Tell me a short joke.", "What is the largest planet?",
]
BEGINNINGS = [
    "Once upon a time", "The quick brown fox", "def fibonacci(n):", "In the beginning", "Water boils at",
    "The meaning of life is",
]


def prompts(tokenizer: Any) -> list[list[int]]:
    chats = [mo.weights.render_chat([{"role": "user", "content": text}], tokenizer.chat_template) for text in QUESTIONS]
    return [tokenizer.encode(text) for text in chats + BEGINNINGS]


class Theirs:
    """The transformers library's model."""

    def __init__(self, path: Path, dtype: str = "float32") -> None:
        import torch
        import transformers

        torch.set_num_threads(1)  # spinning threads would wait for each other on a busy machine
        self.torch = torch
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype=getattr(torch, dtype)).eval()

    def logits(self, ids: list[int]) -> np.ndarray:
        """Of every place: (length, vocabulary)."""
        with self.torch.no_grad():
            found: np.ndarray = self.model(self.torch.tensor([ids])).logits[0].float().numpy()
        return found

    def greedy(self, ids: list[int], count: int) -> list[int]:
        made: list[int] = self.model.generate(
            self.torch.tensor([ids]), attention_mask=self.torch.ones((1, len(ids)), dtype=self.torch.long),
            max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0)[0].tolist()
        return made[len(ids):]


def whole(model: Any) -> Any:
    """The logits of every place, compiled for any length."""
    frozen = mo.nn.Frozen(model)

    def logits(ids: mo.Tensor) -> mo.Tensor:
        frozen.use()
        return model(ids)[0].astype(mo.float32)  # type: ignore[no-any-return]

    return mo.compile(logits, dynamic={"ids": {1: mo.Dim("n", 1, 128)}})


def difference(theirs: Theirs, ids: list[int], wanted: list[int], made: list[int]) -> str:
    """Where two answers part, and how close the decision was."""
    place = next(i for i, (a, b) in enumerate(zip(wanted, made, strict=True)) if a != b)
    row = theirs.logits(ids + wanted[:place])[-1]
    return f"token {place} of {len(wanted)}, logits {row[wanted[place]] - row[made[place]]:.4f} apart"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--tokens", type=int, default=24)
    options = parser.parse_args()
    theirs, (_, tokenizer) = Theirs(options.path), mo.models.load_with_tokenizer(options.path)
    asked = prompts(tokenizer)
    logits = [theirs.logits(ids) for ids in asked]
    answers = [theirs.greedy(ids, options.tokens) for ids in asked]
    print(f"{'weights':22} {'largest difference of a logit':>30} {'same answers':>14}")
    half = Theirs(options.path, "bfloat16")  # how far rounding alone goes
    worst = max(float(np.abs(half.logits(ids) - row).max()) for ids, row in zip(asked, logits, strict=True))
    print(f"{'bfloat16, the library':22} {worst:30.2e} {'-':>14}", flush=True)
    for name, settings in (("float32", {"packed": False}), ("packed", {"packed": True}),
                           ("bfloat16", {"packed": False, "dtype": mo.bfloat16})):
        model = mo.models.load(options.path, **settings)
        model.eos_token_id = None
        forward = whole(model)
        worst = max(float(np.abs(forward(mo.asarray([ids])).numpy() - row).max())
                    for ids, row in zip(asked, logits, strict=True))
        made = [[*mo.models.generate(model, ids, max_new_tokens=options.tokens)] for ids in asked]
        same = sum(a == b for a, b in zip(answers, made, strict=True))
        print(f"{name:22} {worst:30.2e} {same:8} of {len(asked)}")
        for ids, wanted, found in zip(asked, answers, made, strict=True):
            if wanted != found:
                print(f"    {tokenizer.decode(ids)[-40:]!r}: parts at {difference(theirs, ids, wanted, found)}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

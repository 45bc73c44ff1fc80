"""A published GGUF file beside llama.cpp (the wheel xllamacpp): numbers of texts, the likeliest next tokens, texts.

llama.cpp rounds activations to 8 bits before it multiplies them with packed weights, so that likelihoods agree to a
tolerance and long texts part where two tokens are nearly as likely.

    python -m benchmarks.models.published_gguf MODEL.gguf [TOKENS]
"""

from __future__ import annotations

import json
import random
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.serve.servers import llama_cpp

PROMPTS = ["The capital of France is", "def fibonacci(n):\n    ", "Once upon a time there was a", "1, 2, 3, 4, 5, 6,",
           "In der Hauptstadt von Japan", "La somme de 2 et 3 est"]
CORPUS = Path(__file__).parents[1] / "corpus"
ODD = ["", " ", "  two  blanks ", "tab\tand\nline\n\nbreaks\r\n", "naïve café — “quotes”", "日本語のテキスト",
       "🙂👩‍👩‍👧 family", "x = 12345.678e-9; // no", "\u0301combining", "don't WE'LL I'm", "a" * 300, "   \n   \n",
       "ſ 'S", "½ ² Ⅻ ٣"]


def ask(port: int, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as reply:
        return json.loads(reply.read())


def texts(count: int) -> list[str]:
    """Odd ones, and pieces of the corpus."""
    whole = "".join(file.read_text(errors="replace") for file in sorted(CORPUS.glob("*.txt"))[:3])
    draw = random.Random(1)
    return ODD + [whole[start:start + draw.randrange(1, 300)]
                  for start in (draw.randrange(max(1, len(whole) - 300)) for _ in range(count))]


def compare_tokens(tokenizer: Any, port: int) -> None:
    given = texts(200)
    differ = [text for text in given if tokenizer.encode(text, around=False, specials=False)
              != ask(port, "/tokenize", {"content": text, "add_special": False, "parse_special": False})["tokens"]]
    print(f"numbers of {len(given)} texts: {len(differ)} differ", *(repr(text[:60]) for text in differ[:6]), sep="\n  ")
    back = [text for text in given if tokenizer.decode(tokenizer.encode(text)) != text]
    print(f"and back: {len(back)} differ", *(repr(text[:60]) for text in back[:6]), sep="\n  ")


def compare_texts(model: Any, tokenizer: Any, port: int, tokens: int) -> None:
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt)
        logits = model(mo.asarray([ids]))[0, -1].numpy().astype(float)
        ours = logits - np.log(np.sum(np.exp(logits - logits.max()))) - logits.max()
        theirs = ask(port, "/completion", {"prompt": ids, "n_predict": tokens, "temperature": 0, "n_probs": 5,
                                           "cache_prompt": False, "return_tokens": True})
        first = theirs["completion_probabilities"][0]["top_logprobs"]
        worst = max(abs(ours[entry["id"]] - entry["logprob"]) for entry in first)
        found = [int(number) for number in mo.models.generate(model, ids, max_new_tokens=tokens, temperature=0.0)]
        same = next((place for place, pair in enumerate(zip(found, theirs["tokens"])) if pair[0] != pair[1]), tokens)
        print(f"{prompt!r}: log-likelihoods of their five likeliest within {worst:.3f}, "
              f"likeliest {'the same' if int(ours.argmax()) == first[0]['id'] else 'ANOTHER'}; "
              f"{same} of {tokens} tokens alike: {tokenizer.decode(found)!r}", flush=True)


def main(file: str, tokens: str = "24") -> None:
    model, tokenizer = mo.models.load_with_tokenizer(file)
    with llama_cpp(Path(file), 2) as (port, _, _):
        compare_tokens(tokenizer, port)
        compare_texts(model, tokenizer, port, int(tokens))


if __name__ == "__main__":
    main(*sys.argv[1:3])

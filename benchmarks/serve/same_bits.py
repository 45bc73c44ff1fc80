"""64 requests of every kind at once against each of them alone, on a real model:
`python -m benchmarks.serve.same_bits [model] [requests] [device] [dtype]`. Compared are the tokens and the
log-probabilities of every token as float64 bits; a line for each request goes to standard output. Prompts share
prefixes, come at different times and have different lengths; a cache of few pages makes some be evicted and computed
again.
"""

from __future__ import annotations

import random
import struct
import sys
import time
from importlib.util import find_spec
from typing import Any

import morpho as mo
from morpho.cli.text.run import find
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Grammar, Request, SamplingParams

OPENINGS = ("In the beginning", "Once upon a time", "The capital of France is", "def fibonacci(n):",
            "A list of three fruits: apple,", "Dear Sir or Madam, I am writing", "1, 2, 3, 4,", "Water boils at")
FORMS = find_spec("llguidance") is not None  # texts of a given form need it
LATER = 24  # tokens after which the second half of the requests comes


def kinds(draw: random.Random) -> list[SamplingParams]:
    """One of each kind of request."""
    seed = draw.randrange(1 << 30)
    length = draw.randrange(8, 25)
    common: dict[str, Any] = {"max_tokens": length, "logprobs": 3, "ignore_eos": True}
    return [SamplingParams(temperature=0.0, **common), SamplingParams(temperature=0.9, seed=seed, **common),
            SamplingParams(temperature=0.7, seed=seed, top_p=0.9, min_p=0.02, **common),
            SamplingParams(temperature=0.0, repetition_penalty=1.3, frequency_penalty=0.4, **common),
            *([SamplingParams(temperature=0.0, grammar=Grammar("regex", "[a-z ]{8,40}"), **common)] if FORMS else [])]


def requests_of(tokenizer: Any, count: int) -> list[Request]:
    """So many requests: prompts of 3 to some 200 tokens, half of them with a prefix in common."""
    draw = random.Random(1)
    found = []
    for number in range(count):
        text = draw.choice(OPENINGS) + (" and so on," * draw.choice((0, 0, 1, 4, 12, 40)))
        text = ("You are a helpful assistant. " * 3 + text) if draw.random() < 0.5 else text
        found.append(Request(tuple(tokenizer.encode(text)), draw.choice(kinds(draw)), str(number)))
    return found


def bits(events: list[Any]) -> list[tuple[int, bytes]]:
    """Tokens with the bits of the log-probabilities told with them, which are those of the logits."""
    return [(event.token, struct.pack(f"<{1 + len(event.top_logprobs)}d", event.logprob,
                                      *(each for _, each in event.top_logprobs)))
            for event in events if event.token is not None]


def main(name: str = "smollm2", requests: str = "64", device: str = "cpu", dtype: str = "") -> int:
    count = int(requests)
    model, tokenizer = mo.models.load_with_tokenizer(find(name))
    model = (model.astype(getattr(mo, dtype)) if dtype else model).to(device)
    asked = requests_of(tokenizer, count)
    begun = time.monotonic()
    with Engine(model, tokenizer, pages=160, max_batch=64, drafted=0) as engine:
        alone = []
        for request in asked:  # one after another; what earlier ones left in the cache of prefixes is not used
            engine._between_steps(engine.scheduler.pages.clear)
            alone.append(bits([*engine.submit(request)]))
    print(f"{count} alone: {sum(map(len, alone))} tokens, {time.monotonic() - begun:.0f} s", flush=True)
    with Engine(model, tokenizer, pages=56, max_batch=64) as engine:
        streams = [engine.submit(request) for request in asked[:count // 2]]
        while engine.stats().generated_tokens < LATER:
            time.sleep(0.01)
        streams += [engine.submit(request) for request in asked[count // 2:]]
        together = [bits([*stream]) for stream in streams]
        stats = engine.stats()
    wrong = 0
    for number, (one, many) in enumerate(zip(alone, together, strict=True)):
        wrong += one != many
        print(f"{number}: prompt of {len(asked[number].prompt)}, {len(many)} tokens, "
              f"{'the same bits' if one == many else 'DIFFERENT'}")
    print(f"{wrong} of {count} differ; {stats.steps} steps, {stats.generated_tokens} tokens, {stats.prefix_hits} "
          f"tokens of prefixes found, {stats.evictions} evictions, {stats.preemptions} preemptions, "
          f"{stats.accepted} guesses right of {stats.drafted}, {stats.recompiles} recompiles, "
          f"{time.monotonic() - begun:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5]))

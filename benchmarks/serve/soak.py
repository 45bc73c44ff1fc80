"""Minutes of random load on the engine, to see that nothing hangs, leaks or grows: `python -m benchmarks.serve.soak
[minutes]`. Texts come and go from several threads, some are cancelled, some have deadlines, forms, several answers or
are refused. At the end every request has ended, no page is held, and memory is where it was after the first minute. All
functions are compiled before: one that is first needed in the middle takes memory then, and is no leak.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter

import morpho as mo
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Grammar, QueueFull, Request, SamplingParams

THREADS = 12


def resident_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return 1024 * int(next(line for line in file if line.startswith("VmRSS")).split()[1])


def client(engine: Engine, seed: int, until: float, ends: Counter[str]) -> None:
    """One request after another, each of a random kind."""
    draw = random.Random(seed)
    forms = [None, None, None, Grammar("regex", "[a-z ]{1,20}"), Grammar("json_object")]
    while time.monotonic() < until:
        prompt = tuple(draw.randrange(engine.vocabulary) for _ in range(draw.choice((1, 5, 60, 200, 900))))
        params = SamplingParams(temperature=draw.choice((0.0, 1.0)), max_tokens=draw.randrange(1, 60),
                                n=draw.choice((1, 1, 1, 3)), grammar=draw.choice(forms),
                                logprobs=draw.choice((None, 2)))
        deadline = draw.choice((None, None, None, 0.05))
        try:
            stream = engine.submit(Request(prompt, params, str(seed), deadline_s=deadline))
        except (QueueFull, mo.errors.ArgumentError) as error:
            ends[type(error).__name__] += 1
            time.sleep(0.01)
            continue
        leave = draw.randrange(1, 40) if draw.random() < 0.3 else None
        for number, event in enumerate(stream):
            if number == leave:
                stream.cancel()
            if event.finish is not None:
                ends[event.finish if event.error is None else f"{event.finish}: {event.error[:40]}"] += 1


def main(minutes: float) -> int:
    model, tokenizer = mo.models.load_with_tokenizer(mo.models.SHIPPED)
    engine, ends = Engine(model, tokenizer, pages=60, max_batch=16, max_waiting=8), Counter[str]()
    for name in ("prefill", "single", "decode", "verify", "prompts"):
        engine._between_steps(lambda name=name: engine.runner.warm(name))  # type: ignore[misc]
    begin = time.monotonic()
    until = begin + 60 * minutes
    threads = [threading.Thread(target=client, args=(engine, seed, until, ends)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    first = 0
    while time.monotonic() < until:
        time.sleep(min(10.0, 60 * minutes / 4))
        stats = engine.stats()
        print(f"{time.monotonic() - begin:4.0f} s: {stats.steps} steps, {stats.generated_tokens} tokens, "
              f"{stats.running} running, {stats.waiting} waiting, {stats.pages_used} pages, "
              f"{resident_bytes() / 1e6:.0f} MB", flush=True)
        if not first and time.monotonic() - begin > min(60.0, 30 * minutes):
            first = resident_bytes()
    for thread in threads:
        thread.join(120)
    hung = sum(thread.is_alive() for thread in threads)
    stats = engine.stats()
    grown = resident_bytes() - first
    print(f"{stats.steps} steps, {stats.generated_tokens} tokens, ends {dict(ends)}")
    print(f"{hung} hung, {stats.pages_used} pages held, {stats.preemptions} preemptions, {stats.evictions} evictions, "
          f"{stats.recompiles} recompiles, {grown / 1e6:+.1f} MB since the first minute")
    engine.shutdown(drain=False)
    return int(hung > 0 or stats.pages_used > 0 or stats.recompiles > 0 or grown > 10e6)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 10))

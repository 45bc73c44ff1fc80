"""How many of PyTorch's samples and of NumPy's examples give the same here.

    morpho bench conformance                       # both, forward and gradients
    morpho bench conformance --only softmax,norm   # operations of PyTorch by parts of their names
    morpho bench conformance --device cuda:0       # operands on a device
    morpho bench conformance --gate                # status 1 where fewer agree than the stored counts say
    morpho bench conformance --store               # keep the counts of this run
    morpho bench conformance --resume run.jsonl --minutes 9   # a part of the run; call it again to go on
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.conformance import numpy_examples, opinfo

STORED = Path(__file__).with_name("counts.json")
GOOD = ("equal", "slope equal", "names present")
WRONG = ("other values", "other shape", "other structure", "slope differs")


@dataclass
class Options:
    """What the command line asks for."""

    only: str = ""
    device: str = "cpu"
    samples: int = opinfo.SAMPLES
    json: Path | None = None
    gate: bool = False
    store: bool = False
    notes: bool = False
    resume: Path | None = None
    minutes: float = math.inf


def show(title: str, tally: opinfo.Tally, notes: bool) -> None:
    print(f"{title}: " + ", ".join(f"{outcome} {count}" for outcome, count in tally.summary().items()), flush=True)
    for outcome, examples in sorted(tally.notes.items()):
        if notes or outcome in WRONG:
            for name, note in sorted(examples.items()):
                print(f"  {outcome}: {name}: {note}")


def run(options: Options) -> int:
    """0; with `gate` 1 where fewer agree than stored; 2 without PyTorch; 3 where the time was over first."""
    tallies: dict[str, opinfo.Tally] = {}
    names = tuple(filter(None, options.only.split(",")))
    if not names:
        tallies["NumPy's examples"] = numpy_examples.run()
    try:
        tallies["PyTorch's samples"], rest = opinfo.run(names, options.device, samples=options.samples,
                                                        resume=options.resume, minutes=options.minutes)
    except ImportError as error:
        print(f"[bench] PyTorch's samples need torch and expecttest: pip install torch==2.13.0 expecttest ({error})",
              file=sys.stderr)
        return 2
    for title, tally in tallies.items():
        show(title, tally, options.notes)
    if rest:
        print(f"the time is over before {rest}: " + (f"call it again with --resume {options.resume}" if options.resume
                                                     else "give --resume FILE, and the next call goes on there"))
        return 3
    counts = {title: tally.summary() for title, tally in tallies.items()}
    if options.json:
        every = {title: tally.notes for title, tally in tallies.items()}
        absent = {title: tally.absent for title, tally in tallies.items()}
        options.json.write_text(json.dumps({"counts": counts, "absent": absent, "notes": every}, indent=1))
    if options.store:
        STORED.write_text(json.dumps(counts, indent=1) + "\n")
    if options.gate:
        fewer = [f"{title}: {outcome} {counts[title].get(outcome, 0)}, stored {count}"
                 for title, outcomes in json.loads(STORED.read_text()).items() if title in counts
                 for outcome, count in outcomes.items() if outcome in GOOD and counts[title].get(outcome, 0) < count]
        print("\n".join(fewer) or "no fewer than stored")
        return int(bool(fewer))
    return 0

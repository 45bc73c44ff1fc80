"""``python -m benchmarks.models.parity.keys olmo,mixtral``: config.json, one key at a time, against transformers.

Every key of a small model's config.json is set to other values, wrong ones among them, and left out; keys that other
families have are put in. What comes out is refused with a sentence that names the file, has the library's numbers, or
is printed: DIFFERS (other numbers), RAISES (no sentence), "ran" (computed here, an error there). The first two exit 1.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.models.parity import ours, theirs
from benchmarks.models.parity.cases import CASES, Case
from benchmarks.models.parity.inputs import Arrays, inputs, write_folder
from benchmarks.models.parity.values import OTHERS, WRONG

Config = dict[str, Any]
TOLERANCE = 1e-4
SMALLEST = 1 << 40  # a size beyond it is not tried in the library: it would take all memory


def changes(config: Config) -> Iterator[tuple[str, Config]]:
    """Configurations that differ in one key, with what was done."""
    yield from _changed(config, "")
    for name in ("text_config", "vision_config"):
        if isinstance(config.get(name), dict):
            for what, part in _changed(config[name], name + "."):
                yield what, {**config, name: part}


def _changed(config: Config, before: str) -> Iterator[tuple[str, Config]]:
    for key in dict.fromkeys([*config, *OTHERS]):
        if key == "transformers_version":
            continue
        for value in [*OTHERS.get(key, []), *(WRONG if key in config else [])]:
            if key in config and json.dumps(config[key]) == json.dumps(value):
                continue
            found = copy.deepcopy(config)
            found[key] = value
            if key == "rope_scaling":  # the older name of the same
                found.pop("rope_parameters", None)
            yield f"{before}{key}={json.dumps(value)[:80]}", found
    for key in config:
        yield f"without {before}{key}", {name: value for name, value in config.items() if name != key}


class Trial:
    """One case whose configuration is changed."""

    def __init__(self, case: Case) -> None:
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.case, self.kind = case, getattr(transformers, case.architecture)
        found = theirs.reference(case)
        self.files, self.shapes = found["files"], found["shapes"]
        self.config: Config = json.loads(self.files["config.json"])
        self.given = inputs(case.name, case.kind, self.config)
        self.counts: Counter[str] = Counter()

    def run(self, what: str, config: Config) -> None:
        files = {**self.files, "config.json": json.dumps(config)}
        refusal = self._refusal(files, self.shapes)
        if refusal is not None and "config.json" in refusal:
            self.counts["refused"] += 1
            return
        if any(type(value) is int and value > SMALLEST for value in config.values()):
            self._say("not tried", what, refusal or "runs here")
            return
        try:
            shapes, wanted = self._library(config)
            failed = ""
        except Exception as error:  # whatever the library raises
            shapes, wanted, failed = self.shapes, {}, f"{type(error).__name__}: {error}"
        try:
            found = self._ours(files, shapes)
        except mo.errors.MorphoError as error:
            self.counts["both fail" if failed else "refused"] += 1
            if not failed and "config.json" not in str(error):
                self._say("refused without its name", what, str(error))
            return
        except Exception as error:
            self._say("RAISES", what, f"{type(error).__name__}: {error}")
            return
        if failed:
            self._say("ran", what, failed)
            return
        difference = _difference(wanted, found)
        if difference:
            self._say("DIFFERS", what, difference)
        else:
            self.counts["same"] += 1

    def _say(self, outcome: str, what: str, why: str) -> None:
        self.counts[outcome] += 1
        print(f"{outcome}: {self.case.name} | {what}: {' '.join(why.split())[:160]}", flush=True)

    def _ours(self, files: dict[str, str], shapes: dict[str, list[int]]) -> Arrays:
        with tempfile.TemporaryDirectory() as folder, mo.settings(device="reference"):
            write_folder(Path(folder), files, shapes)
            return ours.computed(Path(folder), self.case.kind, self.given, texts=False)

    def _refusal(self, files: dict[str, str], shapes: dict[str, list[int]]) -> str | None:
        """Why a folder with the first weights is not loaded, if it is not."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                write_folder(Path(folder), files, shapes)
                mo.models.load(folder)
        except mo.errors.MorphoError as error:
            return str(error)
        except Exception:  # told when it is run
            return ""
        return None

    def _library(self, config: Config) -> tuple[dict[str, list[int]], Arrays]:
        """The library's shapes and results for a configuration, with weights drawn as ours are."""
        import torch
        from safetensors import safe_open

        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            (place / "config.json").write_text(json.dumps(config))
            made = self.kind.config_class.from_pretrained(place)
            made._attn_implementation = "eager"
            self.kind(made).save_pretrained(place)
            with safe_open(place / "model.safetensors", "np") as file:
                shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            write_folder(place, {**self.files, "config.json": json.dumps(config)}, shapes)
            model = self.kind.from_pretrained(place, attn_implementation="eager").eval()
            model.generate = lambda ids, **_: torch.zeros((1, 40), dtype=torch.long)  # texts are not compared
            with torch.no_grad():
                found = theirs._run(model, self.case.kind, self.given)
        return shapes, {name: np.asarray(value) for name, value in found.items() if name != "tokens"}


def _difference(wanted: Arrays, found: Arrays) -> str:
    for name, right in wanted.items():
        if right.shape != found[name].shape:
            return f"{name} is {found[name].shape}, not {right.shape}"
        error = np.abs(found[name].astype(float) - right.astype(float))
        if np.isnan(right).any() or np.isnan(found[name]).any():
            if np.isnan(right).all() != np.isnan(found[name]).all():
                return f"{name}: NaN on one side"
        elif not error.max() / max(1.0, np.abs(right).max()) < TOLERANCE:
            return f"{name} by {error.max():.1e}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", help="families of the parity cases, or whole names: 'olmo,clip: plain'")
    parser.add_argument("--only", default="", help="changes whose text holds this")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    total: Counter[str] = Counter()
    for name in options.families.split(","):
        trial = Trial(CASES.get(name) or next(case for case in CASES.values() if case.family == name))
        for what, config in changes(trial.config):
            if options.only in what:
                trial.run(what, config)
        print(f"{trial.case.name}: {dict(trial.counts)}", flush=True)
        total += trial.counts
    return bool(total["DIFFERS"] or total["RAISES"])


if __name__ == "__main__":
    sys.exit(main())

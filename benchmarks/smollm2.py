"""SmolLM2's file beside its peers: `morpho models pull smollm2`, then `python -m benchmarks.smollm2`.

Compares every tensor with the gguf library's, and the tokens of many texts with those of the transformers library and
of llama.cpp, and prints what differs.
"""

from __future__ import annotations

import json
import lzma
import random
import urllib.request
from pathlib import Path

import numpy as np

import morpho as mo

CORPUS = Path(__file__).with_name("corpus") / "corpus.txt.xz"


def check_tensors(path: Path) -> None:
    """Each tensor's values, bit for bit."""
    import gguf

    file = mo.weights.load_gguf(path)
    wrong = 0
    for tensor in gguf.GGUFReader(path).tensors:
        ours = file.tensors[tensor.name]
        plain = ours.dequantise() if isinstance(ours, mo.Quantised) else ours
        wrong += not np.array_equal(plain.numpy(), gguf.dequantize(tensor.data, tensor.tensor_type))
    print(f"tensors: {len(file.tensors)}, {wrong} differ from the gguf library's")


def texts(seed: int = 1) -> list[str]:
    """Pieces of the corpus, and mixtures of characters from everywhere."""
    source = random.Random(seed)
    corpus = lzma.open(CORPUS, "rt", encoding="utf-8").read()
    pieces = [corpus[start:start + 300] for start in range(0, len(corpus), 10_000)]
    pool = ["the ", " and", "\n", "  ", "12", " 3.14", "don't", "é", "世界", "🙂", "_", "<|im_start|>", "<|im_end|>",
            "\t", "²"]
    return pieces + ["".join(source.choices(pool, k=source.randrange(1, 40))) for _ in range(1000)]


def check_tokens(path: Path) -> None:
    """The same tokens as with the digits step that the tokenizer has; how many change where it is left out."""
    import transformers
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    ours = mo.weights.load_gguf(path).tokenizer
    theirs = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    library = theirs.backend_tokenizer
    samples = texts()
    without = sum(ours.encode(text) != theirs(text).input_ids for text in samples)
    no_digits = [text for text in samples if not any(character.isnumeric() for character in text)]
    plain = sum(ours.encode(text) != theirs(text).input_ids for text in no_digits)
    library.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    wrong = sum(ours.encode(text) != library.encode(text).ids for text in samples)
    back = sum(ours.decode(ours.encode(text), specials=True) != text for text in samples)
    print(f"texts: {len(samples)}, {wrong} differ from the library's with the digits step, {without} from what the "
          f"transformers library makes of the file without it ({plain} of the {len(no_digits)} without numbers), "
          f"{back} do not come back")


def check_llama_cpp(path: Path) -> None:
    """The same tokens as llama.cpp, asked through its server on this machine."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path, parameters.n_ctx = str(path), 256
    server = xllamacpp.Server(parameters)
    ours = mo.weights.load_gguf(path).tokenizer
    samples, wrong = texts(), 0
    for text in samples:
        body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
        request = urllib.request.Request(server.listening_address + "/tokenize", body,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            wrong += json.load(answer)["tokens"] != ours.encode(text)
    print(f"texts: {len(samples)}, {wrong} differ from llama.cpp's")


if __name__ == "__main__":
    found = mo.weights.model_path("smollm2")
    for check in (check_tensors, check_tokens, check_llama_cpp):
        try:
            check(found)
        except ImportError as error:
            print(f"{check.__name__}: left out, {error}")

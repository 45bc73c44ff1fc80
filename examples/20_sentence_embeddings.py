"""Sentence embeddings with a BERT folder: load it, run sentences of any length through one program, compare them.

    python examples/20_sentence_embeddings.py [FOLDER]

FOLDER holds config.json, model.safetensors and tokenizer.json as the model hubs have them (a published BERT's tokenizer
needs `pip install 'morpho-tensor[models]'`). Without one, a tiny BERT with random weights is written first: it knows
nothing, but sentences that share words come out closer than others.
"""

import sys
import tempfile

import numpy as np

import morpho as mo

SENTENCES = ["the cat sat on the mat", "the cat sat on the hat", "stock prices fell sharply again", "a mat for the cat"]

if len(sys.argv) > 1:
    folder = sys.argv[1]
else:
    temporary = tempfile.TemporaryDirectory()  # deleted in the end
    folder = temporary.name
    mo.nn.seed(0)
    tokenizer = mo.weights.train_bpe(" ".join(SENTENCES * 3), vocab_size=300)
    tiny = mo.models.create("bert-base", vocab_size=tokenizer.vocab_size, hidden_size=32, num_hidden_layers=2,
                            num_attention_heads=4, intermediate_size=64, max_position_embeddings=64)
    mo.models.save(folder, tiny)  # config.json and model.safetensors, under the published names
    mo.weights.save_tokenizer(folder, tokenizer)

model, tokenizer = mo.models.load_with_tokenizer(folder)
rows, length = mo.Dim("rows", 1, 64), mo.Dim("length", 1, 64)


@mo.compile(dynamic={"ids": {0: rows, 1: length}, "mask": {0: rows, 1: length}})
def embed(ids, mask):
    """(rows, length) token numbers, and which of them are text -> (rows, width) of length 1."""
    hidden = model(ids, mask)  # (rows, length, width)
    kept = mask.astype(mo.float32)[:, :, None]
    mean = (hidden * kept).sum(axis=1) / kept.sum(axis=1)
    return mean / mo.sqrt((mean * mean).sum(axis=-1, keepdims=True))


def embedded(sentences):
    """Sentences padded to the longest of them, as vectors; the mask says what is padding."""
    ids, mask = tokenizer.encode_batch(sentences, pad=True)
    return embed(ids, mask).numpy()


vectors = embedded(SENTENCES)
print(np.round(vectors @ vectors.T, 3))
alone = embedded(SENTENCES[:1])
print("alone or in a batch, padded or not, the same bits:", alone[0].tobytes() == vectors[0].tobytes())
print(embed.stats["specialisations"], "program for all sizes")
closest = (vectors[0] @ vectors[1:].T).argmax() + 1
print(f"closest to {SENTENCES[0]!r}: {SENTENCES[closest]!r}")
assert closest == 1 or len(sys.argv) > 1

"""expects: compute
remedy: the encoder once, outside of the loop over words.

A captioning model that encodes the picture again for every word.
"""
import sys

import morpho as mo

better = "better" in sys.argv
mo.nn.seed(0)
encoder = mo.nn.Sequential(*[mo.nn.Sequential(mo.nn.Linear(768, 768), mo.nn.GELU()) for _ in range(6)])
table = mo.random.normal(mo.random.key(0), (1000, 768)).realise()
patches = mo.random.normal(mo.random.key(1), (576, 768)).realise()


def choose(seen, words):
    query = words.mean(axis=0)
    weights = mo.softmax(seen @ query / 27.7, axis=0)
    return mo.argmax(table @ (weights @ seen + query))


whole = mo.compile(lambda patches, words: choose(encoder(patches), words))
encode, decode = mo.compile(encoder), mo.compile(choose)
words = mo.zeros((16, 768))
seen = encode(patches) if better else None
found = []
for _ in range(80):
    word = decode(seen, words) if better else whole(patches, words)
    found.append(int(word))
    words = mo.concat([words[1:], table[found[-1]][None]]).realise()
print(found[-3:])

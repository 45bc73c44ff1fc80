"""Weights of words, the nearest documents, and a query."""

from collections import Counter

import numpy as np

docs = ["the cat sat on the mat", "the dog sat on the log", "cats and dogs are friends", "the cat chased the dog"]
vocab = sorted({w for d in docs for w in d.split()})
index = {w: i for i, w in enumerate(vocab)}
tf = np.zeros((len(docs), len(vocab)), dtype=int)
for i, d in enumerate(docs):
    for w, c in Counter(d.split()).items():
        tf[i, index[w]] += c
df = np.count_nonzero(tf, axis=0)
idf = np.log((1 + len(docs)) / (1 + df)) + 1
tfidf = tf * idf
tfidf /= np.linalg.norm(tfidf, axis=1, keepdims=True)
sim = tfidf @ tfidf.T
np.fill_diagonal(sim, 0)
top = np.argsort(-tfidf, axis=1, kind='stable')[:, :3]
q = np.zeros(len(vocab)); q[index["cat"]] = 1; q[index["mat"]] = 1
scores = tfidf.dot(q) / np.linalg.norm(q)
rank = scores.argsort()[::-1]
result = [tfidf, sim, top[:, 0], scores, rank]

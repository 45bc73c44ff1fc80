"""Einsum: many tensors in one expression, the order of contraction chosen and shown, joins of relations.

    python examples/09_einsum.py
"""

import numpy as np

import morpho as mo

generator = np.random.default_rng(9)

# Attention with heads as plain labels: batches b and h, queries q, keys k, features d. No transpose is written.
queries, keys, values = (mo.asarray(generator.standard_normal((2, 16, 4, 8), dtype=np.float32)) for _ in range(3))
scores = mo.einsum("bqhd,bkhd->bhqk", queries, keys) / 8**0.5
mixed = mo.einsum("bhqk,bkhd->bqhd", mo.softmax(scores), values)
print("attention:", mixed.shape)

# A tensor in Tucker form: a small core and four factors. In one loop over all labels this takes 17 billion operations.
core = generator.standard_normal((6, 6, 6, 6))
factors = [generator.standard_normal((40, 6)) for _ in range(4)]
order = mo.einsum_path("abcd,ia,jb,kc,ld->ijkl", core, *factors)
print(order)
whole = mo.einsum("abcd,ia,jb,kc,ld->ijkl", core, *factors)
picked = np.einsum("abcd,a,b,c,d->", core, *(factor[3] for factor in factors))
assert np.allclose(whole[3, 3, 3, 3].item(), picked)
assert order.flops < order.flops_at_once / 100

# A hard cap on every intermediate: another order, or an error that names the smallest cap that would work.
try:
    mo.einsum("abcd,ia,jb,kc,ld->ijkl", core, *factors, memory_limit="50 kB")
except MemoryError as error:
    print(error)

# Truth values: a product is `and`, a sum is `or`. Who has a grandparent in common? Three joins, no n^3 table.
parent = generator.random((200, 200)) < 0.004
cousins = mo.einsum("ap,pg,cq,qg->ac", parent, parent, parent, parent)
by_numpy = (parent.astype(int) @ parent) @ (parent.astype(int) @ parent).T > 0
print("pairs with a common grandparent:", cousins.numpy().sum())
assert np.array_equal(cousins.numpy(), by_numpy)

# Gradients come with it: of a trace of three matrices, with respect to the first.
a, b, c = (generator.standard_normal((5, 5)) for _ in range(3))
gradient = mo.grad(lambda x: mo.einsum("ij,jk,ki->", x, b, c))(mo.asarray(a))
assert np.allclose(gradient.numpy(), (b @ c).T)
print("gradient of a trace: right")

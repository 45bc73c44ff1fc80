"""expects: cold
remedy: a cache folder that is kept: the second run finds the code.

A monthly report: nine different figures of one table, each computed once, and the program ends.
"""
import sys

import morpho as mo

better = "better" in sys.argv
table = mo.random.normal(mo.random.key(0), (4000, 12)).realise()
figures = [
    mo.compile(lambda t: t.mean(axis=0)), mo.compile(lambda t: mo.std(t, axis=0)),
    mo.compile(lambda t: mo.sort(t, axis=0)[2000]), mo.compile(lambda t: (t.T @ t) / 4000.0),
    mo.compile(lambda t: mo.softmax(t, axis=1).max()), mo.compile(lambda t: mo.cumulative_sum(t, axis=0)[-1]),
    mo.compile(lambda t: mo.log(mo.abs(t) + 1.0).sum(axis=0)), mo.compile(lambda t: mo.argmax(t, axis=0)),
    mo.compile(lambda t: mo.tanh(t).var(axis=0)),
]
print([float(figure(table).sum()) for figure in figures])

"""expects: memory
remedy: the lines as one compiled function.

Preparing a column line by line, each looked at, as in a notebook.
"""
import sys

import morpho as mo

better = "better" in sys.argv
x = mo.random.normal(mo.random.key(0), (8_000_000,)).realise()


def look(t):
    return t if better else t.realise()


def prepare(x):
    x = look(x - 0.1)
    x = look(x / 1.3)
    x = look(mo.clip(x, -3.0, 3.0))
    x = look(x * x)
    x = look(x + 1.0)
    x = look(mo.where(x > 2.0, x, 2.0))
    return look(x * 0.5)


run = mo.compile(prepare) if better else prepare
for _ in range(25):
    y = run(x)
print(y[:3].tolist())

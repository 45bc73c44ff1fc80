"""expects: python
remedy: the loop over customers in the compiled function (mo.fori_loop).

A queue at a till: one small compiled call for each customer.
"""
import sys

import morpho as mo

better = "better" in sys.argv
customers = 60_000
arrival = mo.cumulative_sum(mo.random.uniform(mo.random.key(0), (customers,))).realise()
service = mo.random.uniform(mo.random.key(1), (customers,)).realise()


def serve(i, state):
    free, waited = state
    start = mo.maximum(free, arrival[i])
    return start + service[i], waited + start - arrival[i]


one = mo.compile(lambda free, waited, i: serve(i, (free, waited)))
whole = mo.compile(lambda free, waited: mo.fori_loop(0, customers, serve, (free, waited)))
free, waited = mo.asarray(0.0), mo.asarray(0.0)
if better:
    free, waited = whole(free, waited)
else:
    places = [mo.asarray(i) for i in range(customers)]
    for i in places:
        free, waited = one(free, waited, i)
print(float(waited) / customers)

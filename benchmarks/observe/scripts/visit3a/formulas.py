"""expects: cold
remedy: one compiled function for all of them.

Twenty formulas of a report, each compiled for the one call that it gets.
"""
import sys

import morpho as mo

better = "better" in sys.argv
x = mo.linspace(0.1, 2.0, 500).realise()
functions = [mo.sin, mo.cos, mo.exp, mo.log, mo.tanh, mo.sqrt, mo.sigmoid, mo.erf, mo.gelu, mo.silu]
formulas = [lambda x, f=f, k=k: (f(x) * k + f(x * x)).sum() for k in (1.0, 2.0) for f in functions]
if better:
    print([float(v) for v in mo.compile(lambda x: [formula(x) for formula in formulas])(x)][:2])
else:
    print([float(mo.compile(formula)(x)) for formula in formulas][:2])

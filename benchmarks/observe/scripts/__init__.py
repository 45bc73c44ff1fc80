"""Whole scripts with a known bottleneck, for `morpho profile script.py` as a user meets it.

Each says in its docstring which verdict is expected first (`expects:`, one or several kinds) and what would be done
about it (`remedy:`); with the argument `better` it runs with the remedy. Both were written before the first run, by
somebody who had not read the analyser. `python -m benchmarks.observe.scripts FOLDER` counts.
"""

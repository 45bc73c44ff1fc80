"""The tuner: kernels of the same bits race on this machine, and the faster one is taken from then on.

`sequential.py` has the statistics, `search.py` the search, both pure; `space.py` says what may be tried for a problem,
`slices.py` runs a problem by itself, `store.py` keeps what was found, `tuner.py` puts them together, `background.py`
does it beside a program that runs.
"""

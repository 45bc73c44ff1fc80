"""Array programs of science and statistics, each written here from its definition, against the peers in the same run.

    morpho bench programs                             # everything, two threads
    morpho bench programs --threads 1 --json one.json # one thread
    morpho bench programs --only carried,ocean --quick
    python -m benchmarks programs --only dense --peers numpy,jax

One file per class: its programs as NumPy functions, which are the definition and NumPy's entry, with their inputs and
two sizes (small for the tests, large for the clock). The other peers' ways are in `peers/<peer>/programs/`, a file per
class. Functions take arrays and return new ones: a way that works in place copies first, and the copy is timed.
"""

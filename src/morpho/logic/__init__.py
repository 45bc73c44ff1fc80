"""Facts, rules and queries as tensor programs: `mo.logic`.

>>> program = mo.logic.Program("path(X, Y) :- edge(X, Y). path(X, Z) :- path(X, Y), edge(Y, Z).")
>>> program.add("edge", [("a", "b"), ("b", "c")])
>>> list(program.query("path(a, X)"))
[('b',), ('c',)]
"""

from morpho.logic.dense.function import TensorProgram
from morpho.logic.embeddings import KnowledgeGraph, Ranking
from morpho.logic.facts import MissingTable, read_facts
from morpho.logic.model import Answer, Model
from morpho.logic.program import Predicate, Program, variables
from morpho.logic.provenance.proofs import Proof, proof, supports
from morpho.logic.semantics.semirings import Semiring, semiring
from morpho.logic.semantics.truth_values import Logic, logic
from morpho.logic.syntax.errors import LogicError
from morpho.logic.syntax.terms import Variable

__all__ = ["Answer", "KnowledgeGraph", "Logic", "LogicError", "MissingTable", "Model", "Predicate", "Program",
           "Proof", "Ranking", "Semiring",
           "TensorProgram", "Variable", "logic", "proof", "read_facts", "semiring", "supports", "variables"]

"""Knowledge-graph completion: learned embeddings of entities and relations, beside rules that explain.

DistMult and ComplEx score a triple by a product of three vectors (Yang et al. 2015, Trouillon et al. 2016); for each
known question (head, relation, ?) training compares all entities with the known answers (binary cross-entropy), and a
second loss says by how much the bodies of rules are truer than their heads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.logic.program import Program
from morpho.logic.provenance.proofs import Proof, proof

Triple = tuple[str, str, str]
SCORES = ("distmult", "complex")


@dataclass(frozen=True)
class Ranking:
    """How high the true tails stand: the mean of 1 / rank, and the share among the first 1, 3 and 10.

    >>> mo.logic.Ranking(0.5, 0.25, 0.5, 1.0).hits1
    0.25
    """

    mrr: float
    hits1: float
    hits3: float
    hits10: float


class KnowledgeGraph:
    """Triples (head, relation, tail), and embeddings that are trained to complete them.

    >>> graph = mo.logic.KnowledgeGraph([("ann", "mother", "bob"), ("bob", "father", "cid")], dimension=8)
    >>> losses = graph.train(steps=60, lr=0.1)
    >>> losses[-1] < losses[0], graph.complete("ann", "mother", 1)[0][0]
    (True, 'bob')

    triples: what is known
    dimension: of the vectors
    score: `complex` or `distmult`
    rules: a logic program over the relations as predicates of two terms, for explanations and as a loss
    seed: of the first values
    """

    def __init__(self, triples: Iterable[Triple], dimension: int = 32, score: str = "complex", rules: str = "",
                 seed: int = 0) -> None:
        if score not in SCORES:
            raise fail(ArgumentError, "logic", f"score {score!r} is not known", f"those are {', '.join(SCORES)}")
        self.triples = sorted({_triple(one) for one in triples})
        if not self.triples:
            raise fail(ArgumentError, "logic", "a knowledge graph needs a triple")
        self.entities = sorted({name for head, _, tail in self.triples for name in (head, tail)})
        self.relations = sorted({relation for _, relation, _ in self.triples})
        self.entity = {name: number for number, name in enumerate(self.entities)}
        self.relation = {name: number for number, name in enumerate(self.relations)}
        self.score, self.rules, self.width = score, rules, dimension * (2 if score == "complex" else 1)
        rng = np.random.default_rng(seed)
        self.parameters = {name: mo.asarray((rng.standard_normal((size, self.width)) * 0.3).astype(np.float32))
                           for name, size in (("entities", len(self.entities)), ("relations", len(self.relations)))}
        self._moments = {name: (mo.zeros_like(value), mo.zeros_like(value)) for name, value in self.parameters.items()}
        self._steps = 0
        self.program = self._program()

    def _program(self) -> Program:
        program = Program(self.rules, "rules")
        for relation in self.relations:
            program.add(relation, [(head, tail) for head, own, tail in self.triples if own == relation])
        return program

    def scores(self, parameters: dict[str, Any], heads: Any, relations: Any) -> Any:
        """The scores of all entities as tails of questions: a tensor of (questions, entities)."""
        entities = parameters["entities"]
        h, r = mo.take(entities, heads, axis=0), mo.take(parameters["relations"], relations, axis=0)
        if self.score == "distmult":
            return (h * r) @ entities.T
        half = self.width // 2
        hr, hi, rr, ri = h[:, :half], h[:, half:], r[:, :half], r[:, half:]
        both = mo.concat([hr * rr - hi * ri, hr * ri + hi * rr], axis=1)
        return both @ entities.T

    def train(self, steps: int = 200, lr: float = 0.05, rule_weight: float = 0.0, decay: float = 1e-3) -> list[float]:
        """Train on all triples; the losses. `rule_weight` adds how untrue the rules are of the learned relations.

        steps: of Adam
        lr: its rate
        rule_weight: of the rules' loss
        decay: of the squares of what the triples use
        """
        questions = sorted({(self.entity[head], self.relation[relation]) for head, relation, _ in self.triples})
        answers = np.zeros((len(questions), len(self.entities)), np.float32)
        row = {question: number for number, question in enumerate(questions)}
        for head, relation, tail in self.triples:
            answers[row[self.entity[head], self.relation[relation]], self.entity[tail]] = 1
        heads, relations = (mo.asarray(np.asarray(column, np.int64)) for column in zip(*questions))
        true = mo.asarray(answers)

        def loss(parameters: dict[str, Any]) -> Any:
            scores = self.scores(parameters, heads, relations)
            found = mo.mean(mo.sum(mo.softplus(scores) - true * scores, axis=1))
            found = found + decay * sum((mo.mean(value**2) for value in parameters.values()), mo.asarray(0.0))
            return found + rule_weight * self.untruth(parameters) if rule_weight else found

        step = mo.compile(_adam_step(loss))
        losses = []
        for _ in range(steps):
            self._steps += 1
            value, self.parameters, self._moments = step(self.parameters, self._moments, mo.asarray(lr),
                                                         mo.asarray(float(self._steps)))
            losses.append(float(value))
        return losses

    def degrees(self, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """Each relation as a predicate: a tensor of how true (head, tail) is, for all pairs."""
        parameters = parameters or self.parameters
        everyone = mo.arange(len(self.entities))
        return {name: mo.sigmoid(self.scores(parameters, everyone, mo.full((len(self.entities),), number,
                                                                           dtype=mo.int64)))
                for name, number in self.relation.items()}

    def untruth(self, parameters: dict[str, Any]) -> Any:
        """1 - the mean truth of the rules under the learned degrees: a body should not be truer than its head."""
        degrees = self.degrees(parameters)
        known = {name: value for name, value in degrees.items() if name in self._tensors.facts}
        derived = self._tensors({name: value for name, value in known.items()})
        gaps = [mo.mean(mo.relu(derived[name] - known[name])) for name in known if name in self._heads]
        return sum(gaps, mo.asarray(0.0)) / max(1, len(gaps))

    @property
    def _heads(self) -> set[str]:
        return {rule.head.predicate for rule in self.program.parsed.rules if not rule.is_fact}

    @property
    def _tensors(self) -> Any:
        if not hasattr(self, "_tensor_program"):
            whole = self._program()
            for relation in self.relations:  # every relation has all entities along both of its axes
                whole.add(relation, [(name, name) for name in self.entities], weights=0.0)
            self._tensor_program = whole.tensors("max_times", rounds=2)
        return self._tensor_program

    def complete(self, head: str, relation: str, count: int = 5) -> list[tuple[str, float]]:
        """The most likely tails of a question, with their scores; those that are known are among them."""
        self._known(head, relation)
        scores = self.scores(self.parameters, mo.asarray([self.entity[head]]), mo.asarray([self.relation[relation]]))
        row = scores[0].numpy()
        return [(self.entities[number], float(row[number])) for number in np.argsort(-row, kind="stable")[:count]]

    def rank(self, triples: Iterable[Triple]) -> Ranking:
        """How the true tails of triples rank among all entities, those that are true otherwise left out (filtered)."""
        asked = [_triple(one) for one in triples]
        known: dict[tuple[str, str], set[int]] = {}
        for head, relation, tail in (*self.triples, *asked):
            self._known(head, relation)
            known.setdefault((head, relation), set()).add(self._entity(tail))
        scores = self.scores(self.parameters, mo.asarray([self.entity[h] for h, _, _ in asked]),
                             mo.asarray([self.relation[r] for _, r, _ in asked])).numpy()
        ranks = []
        for row, (head, relation, tail) in zip(scores, asked):
            true = self.entity[tail]
            others = np.delete(np.arange(len(row)), sorted(known[head, relation]))
            ranks.append(1 + int((row[others] > row[true]).sum()))
        return ranking(ranks)

    def explain(self, head: str, relation: str, tail: str) -> Proof | None:
        """A proof of a triple from the known ones by the rules; None where the rules do not derive it."""
        self._known(head, relation)
        self._entity(tail)
        model = self.program.run()
        return proof(model, relation, head, tail) if (head, tail) in model[relation] else None

    def _known(self, head: str, relation: str) -> None:
        self._entity(head)
        if relation not in self.relation:
            raise fail(ArgumentError, "logic", f"there is no relation {relation}",
                       f"those are {', '.join(self.relations)}")

    def _entity(self, name: str) -> int:
        if name not in self.entity:
            raise fail(ArgumentError, "logic", f"there is no entity {name}")
        return self.entity[name]


def ranking(ranks: Sequence[int]) -> Ranking:
    """The usual measures of ranks."""
    found = np.asarray(ranks, np.float64)
    return Ranking(float((1 / found).mean()), *(float((found <= most).mean()) for most in (1, 3, 10)))


def _triple(one: Any) -> Triple:
    if not (isinstance(one, tuple | list) and len(one) == 3 and all(isinstance(part, str) for part in one)):
        raise fail(ArgumentError, "logic", f"{one!r} is no triple of strings (head, relation, tail)")
    return one[0], one[1], one[2]


def _adam_step(loss: Any) -> Any:
    """A step of Adam as one function: parameters and moments in and out."""
    def step(parameters: dict[str, Any], moments: dict[str, Any], lr: Any, count: Any) -> Any:
        value, slopes = mo.value_and_grad(loss)(parameters)
        new, after = {}, {}
        for name, slope in slopes.items():
            first = 0.9 * moments[name][0] + 0.1 * slope
            second = 0.999 * moments[name][1] + 0.001 * slope**2
            scaled = (first / (1 - 0.9**count)) / (mo.sqrt(second / (1 - 0.999**count)) + 1e-8)
            new[name], after[name] = parameters[name] - lr * scaled, (first, second)
        return value, new, after

    return step

"""Arithmetic of integers: the greatest common divisor."""

from __future__ import annotations

import numpy as np

from morpho.ir.op import TWO, NoGradient, Op, register
from morpho.ops.elementwise import same

GCD = register(Op("gcd", "elementwise", same("gcd", "iu"), NoGradient("defined on integers or booleans"),
                  lambda attributes, a, b: np.gcd(a, b), 64, properties=frozenset({"commutative"}), arity=TWO,
                  summary="The greatest common divisor, never negative; of 0 and x it is |x|."))

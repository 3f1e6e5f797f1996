"""The reference matcher as an engine of the conformance corpus: the one file here that knows the library."""

from __future__ import annotations

import random

from asterism.conformance.corpus import Answer, Case
from asterism.conformance.engines import operator_for
from asterism.patterns.semantics import Semantics
from tests.reference.matcher import run_case


def run_reference(case: Case, semantics: Semantics, cuts: str, rng: random.Random) -> Answer:
    """The answers of the reference matcher, which knows no cuts."""
    operator_for(case, semantics)  # the reference trusts definitions; this one may be malformed
    return run_case(case, semantics.value)

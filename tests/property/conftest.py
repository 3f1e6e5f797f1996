"""How hard to search: ``ASTERISM_PROPERTY=long pytest tests/property`` looks further than CI, at random."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "ci", deadline=None, derandomize=True, database=None, max_examples=120, suppress_health_check=_SLOW
)
settings.register_profile(
    "long", deadline=None, max_examples=5000, database=None, suppress_health_check=_SLOW, print_blob=True
)
settings.load_profile(os.environ.get("ASTERISM_PROPERTY", "ci"))

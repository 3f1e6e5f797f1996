"""The functions of conditions and measures: an entry each in :data:`FUNCTIONS`, in one module for each group of ``docs/sql.md``.

``table`` has the table, and what checks arguments. The order of the imports below is that of the documentation.
"""

from asterism.expressions.functions.table import FUNCTIONS, NOT_PURE, WITHOUT_PARENTHESES, Function, Lambda, string  # isort: skip
from asterism.expressions.functions import choices, numbers, mathematics, bits  # noqa: F401 # isort: skip
from asterism.expressions.functions import texts, words, encodings, formats  # noqa: F401 # isort: skip

from asterism.expressions.functions.regexes import like, rlike  # isort: skip
from asterism.expressions.functions.times import UNIT_FIRST, extracted  # isort: skip
from asterism.expressions.functions import time_formats, moments  # noqa: F401 # isort: skip
from asterism.expressions.functions import arrays, lambdas, maps, sketches, json  # noqa: F401 # isort: skip
from asterism.expressions.functions.collections import field_of, item_of  # isort: skip
from asterism.expressions.routines import numbers as _, times as _times  # noqa: F401 # isort: skip # registers routines

__all__ = [
    "FUNCTIONS",
    "NOT_PURE",
    "UNIT_FIRST",
    "WITHOUT_PARENTHESES",
    "Function",
    "Lambda",
    "extracted",
    "field_of",
    "item_of",
    "like",
    "rlike",
    "string",
]

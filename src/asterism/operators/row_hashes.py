"""The hashes of rows by which Spark distributes keys over key groups, without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.columns.groups import first_rows, group_codes
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.text.printable import quoted_name


def row_hashes(rows: pa.Table) -> Ints:
    """``xxhash64`` of each row; 0 without columns.

    >>> row_hashes(pa.table({"user": ["ann", "bob", "ann"]})).tolist()
    [7160020621161744715, 5911172816241722635, 7160020621161744715]
    """
    if not rows.column_names:
        return np.zeros(rows.num_rows, np.int64)
    codes, count = group_codes(rows)
    scope, vectorized = Scope(rows.schema), Vectorized(rows.schema)
    sql = f"xxhash64({', '.join(map(quoted_name, rows.column_names))})"
    vectorized.add(scope.resolve(scope.parse(sql), sql), sql)
    (hashes,) = vectorized.evaluate(rows.take(pa.array(first_rows(codes, count))))
    of_codes: Ints = hashes.to_numpy()
    return of_codes[codes]

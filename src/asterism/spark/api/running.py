"""Runs any streaming DataFrame that contains operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from asterism.arguments import expect
from asterism.errors import StreamDefinitionError
from asterism.spark.host.execution import Sink, run_frame
from asterism.spark.savepoints.starting import begin_from_savepoint
from asterism.streams.run_options import RunOptions

_HINT = 'run(asterism.sql("SELECT ...", spark), sink, checkpoint=path), where sink(df, batch_id) writes rows'


def run(
    df: DataFrame,
    sink: Sink | list[Sink] | tuple[Sink, ...],
    *,
    checkpoint: str | None = None,
    drain: bool | None = None,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    from_savepoint: str | None = None,
) -> StreamingQuery | None:
    """Write the rows of *df*, the result of :func:`asterism.sql`, an output of an operator, or what was made of them, to *sink*.

    The query has the settings that the method ``run`` of a pattern's stream sets: the number of stateful tasks, the size of
    batches for Python, the compression of the state, and how the files of a checkpoint are written. Those of the session stay as
    they are. A table (a DataFrame that is not a stream) is passed to the sink once, with the batch id 0.

    :param df: a DataFrame, streaming or not
    :param sink: a function of a DataFrame and a batch id, see :mod:`asterism.sinks`; or several, which are called one after the
        other with the same rows
    :param checkpoint: the checkpoint location, which a stream needs
    :param drain: whether to end the input of all operators after all available data has been processed: every deadline fires,
        and the state is empty. Default: True without a trigger, False with one.
    :param trigger: arguments of ``DataStreamWriter.trigger``. Default: process the available data and return.
    :param name: the name of the query
    :param from_savepoint: see :meth:`asterism.PatternStream.run`
    :return: the running query if *trigger* was given; otherwise None, after the query has ended
    :raises StreamDefinitionError: an argument is invalid
    :raises CheckpointRequiredError: a stream without a checkpoint
    :raises AsterismError: the query failed with this error, which Spark's exception contains

    A runnable example: docs/match_recognize.md.
    """
    expect(StreamDefinitionError, df, DataFrame, "the first argument must be a DataFrame", _HINT)
    sinks = list(sink) if isinstance(sink, list | tuple) else [sink]
    options = RunOptions.checked(
        {f"rows {number}" if number else "rows": each for number, each in enumerate(sinks)},
        checkpoint,
        drain,
        trigger,
        name,
        with_trigger=False,
        key_groups=None,
        from_savepoint=from_savepoint,
    )
    begin_from_savepoint(df.sparkSession, options, streaming=df.isStreaming)
    if not df.isStreaming:
        for each in sinks:
            each(df, 0)
        return None
    return run_frame(df, sinks, options)

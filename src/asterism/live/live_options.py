"""The arguments of the methods ``open`` of all streams, which open a live engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from os import PathLike

from asterism.arguments import expect, expect_number, expect_strings, shown
from asterism.errors import StreamDefinitionError
from asterism.operators.sink_functions import Sink

SNAPSHOT_EVERY = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class LiveOptions:
    """The arguments of the methods ``open`` of all streams.

    :param folder: where the state is kept; None: in memory only
    :param snapshot_every: how often a snapshot is taken: after so much time, or after so many events; None: only by
        :meth:`LiveEngine.snapshot`, and at the end
    :param sinks: functions that take the rows of an output and the number of the call
    """

    folder: str | PathLike[str] | None = None
    snapshot_every: timedelta | int | None = SNAPSHOT_EVERY
    sinks: Mapping[str, Sink] = field(default_factory=dict)
    outputs: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        folder: str | PathLike[str] | None,
        outputs: Sequence[str] | None,
        sinks: Mapping[str, Sink] | None,
        snapshot_every: timedelta | int | None,
        other_outputs: Iterable[str] = (),
    ) -> LiveOptions:
        """The arguments of a user. The outputs include those of the sinks.

        :param other_outputs: those for which there are other arguments
        :raises StreamDefinitionError: an argument is of a wrong type
        """
        hint = 'open("state", outputs=["matches"])'
        expect_strings(
            StreamDefinitionError, () if outputs is None else outputs, "outputs must be a list of names", hint
        )
        options = cls(folder=folder, snapshot_every=snapshot_every, sinks={} if sinks is None else sinks)
        return replace(options, outputs=tuple(dict.fromkeys([*(outputs or ()), *other_outputs, *options.sinks])))

    def __post_init__(self) -> None:
        expect(StreamDefinitionError, self.folder, str | PathLike | None, "the folder must be a path", 'open("state")')
        if self.folder == "":
            raise StreamDefinitionError("the name of the folder is empty", hint='open("state")')
        if self.folder is not None and "://" in str(self.folder):
            raise StreamDefinitionError(
                f"the folder of a live engine must be on a local disk, not {shown(self.folder)}",
                "A copy elsewhere is a savepoint: create_live_savepoint.",
                'open("/data/state")',
            )
        what, hint = "snapshot_every must be a timedelta or a number of events", "snapshot_every=timedelta(seconds=10)"
        expect(StreamDefinitionError, self.snapshot_every, timedelta | int | None, what, hint)
        if isinstance(self.snapshot_every, timedelta) and self.snapshot_every <= timedelta(0):
            raise StreamDefinitionError(f"snapshot_every must be positive, not {self.snapshot_every}")
        if isinstance(self.snapshot_every, int):
            expect_number(StreamDefinitionError, self.snapshot_every, "snapshot_every", least=1, most=2**62)
        expect(
            StreamDefinitionError, self.sinks, Mapping, "sinks must map outputs to functions", "sinks={'matches': f}"
        )
        for output, sink in self.sinks.items():
            if not callable(sink):
                raise StreamDefinitionError(f'the sink of "{output}" must be a function, not {shown(sink)}')


def not_live() -> StreamDefinitionError:
    """The error for a stream that is a DataFrame of Spark."""
    return StreamDefinitionError(
        "a stream of Spark cannot be opened",
        "A live engine has no Spark: its events come from the caller.",
        'KeyedStream(pa.schema([...]), key="user", time="ts"); or run(..., checkpoint=...) for this stream',
    )

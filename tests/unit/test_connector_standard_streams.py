"""`stdin` and `stdout`: lines in and out of pipes; as a plugin program they refuse with words."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from penstock.connectors.stdin.source import StdinSource
from penstock.connectors.stdout.destination import StdoutDestination
from penstock_protocol.interfaces import PluginError
from penstock_protocol.process import PluginProcess
from penstock_sdk import Record, Stop
from penstock_sdk.destination_plugin import DestinationAdapter
from penstock_sdk.source_plugin import SourceAdapter
from penstock_sdk.wire import from_records, to_records

SERVE = "import sys; from penstock_sdk import serve; from penstock.connectors.{0}.connector import connector; sys.exit(serve(connector))"


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    ends = list(os.pipe())
    yield ends
    for fd in ends:
        if fd >= 0:
            os.close(fd)


def test_lines_of_standard_input_come_as_they_end(pipe: list[int]) -> None:
    class Here(StdinSource):
        fd = pipe[0]

    source = SourceAdapter(Here)
    source.configure({"max-line-bytes": "5"})
    source.open(b"some run:7")
    assert from_records(source.read(0)) == []
    os.write(pipe[1], b"one\ntw")
    found = from_records(source.read(10))
    os.write(pipe[1], b"o\n\nlonger than five\nend")
    os.close(pipe[1])
    pipe[1] = -1
    while len(found) < 8:
        found += from_records(source.read(10))
    assert [r.after for r in found] == [b"one", b"two", b"", b"longe", b"r tha", b"n fiv", b"e", b"end"]
    assert [r.metadata.get("stdin.piece") for r in found[3:]] == ["first", "middle", "middle", "last", None]
    assert len({r.position for r in found}) == 8
    assert from_records(source.read(0)) == []  # the end of the input is no end of the source
    source.teardown()


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("payload", b'raw\n{"a":1,"b":"\\u003c"}\nnull\n'),
        ("opencdc", b'"after":"cmF3"}}'),
    ],
)
def test_every_record_is_a_line_of_standard_output(pipe: list[int], form: str, text: bytes) -> None:
    class Here(StdoutDestination):
        fd = pipe[1]

    destination = DestinationAdapter(Here)
    destination.configure({"format": form})
    destination.open()
    records = [
        Record(b"raw", position=b"1"),
        Record({"b": "<", "a": 1}, position=b"2"),
        Record(position=b"3", operation="delete"),
    ]
    destination.write(to_records(records))
    assert [a.error for a in destination.acks(10)] == ["", "", ""]
    written = os.read(pipe[0], 1 << 16)
    assert text in written
    assert written.count(b"\n") == 3
    destination.teardown()


def test_a_closed_pipe_stops_it(pipe: list[int]) -> None:
    class Here(StdoutDestination):
        fd = pipe[1]

    os.close(pipe[0])
    pipe[0] = -1
    destination = DestinationAdapter(Here)
    destination.configure({})
    destination.open()
    with pytest.raises(Stop, match="nobody reads standard output any more"):
        destination.write(to_records([Record(b"x", position=b"1")]))
    destination.teardown()


def test_a_plugin_program_has_neither() -> None:
    with PluginProcess([sys.executable, "-c", SERVE.format("stdin")], connector_id="p:c") as process:
        source = process.source()
        source.configure({})
        with pytest.raises(PluginError, match="no standard input"):
            source.open(b"")
    with PluginProcess([sys.executable, "-c", SERVE.format("stdout")], connector_id="p:c") as process:
        destination = process.destination()
        destination.configure({})
        with pytest.raises(PluginError, match="no standard output"):
            destination.open()

"""The hostile cases of lines of text: what is in a line is nobody's business, so nearly all of it arrives byte for byte."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.testing.hostile import LONG_AGO, Case, Delivered, Nacked, Outcome, Unreadable

BOM = b"\xef\xbb\xbf"
MEGA = 1024 * 1024
# Names that a shell, a URL, a glob or a listing would take for something else.
NAMES = (
    "a b.txt",
    "%41.txt",
    "1+1.txt",
    "[x].txt",
    "{y}.txt",
    "ü.txt",
    "日本 🎈.txt",
    "new\nline.txt",
    "-dash.txt",
    "back\\slash.txt",
    "star*.txt",
    "what?.txt",
    "#hash.txt",
    "a:b.txt",
    "file:.txt",
    "semi;colon.txt",
    "quote'\".txt",
    "%zz.txt",
    "100%.txt",
    "tab\t.txt",
    "key=value",
    " .txt",
    "~",
    "x" * 200 + ".txt",
)


def cases(long: bool = False) -> Iterator[Case]:
    yield _lines("text-bom", BOM + b"bom:0\n" + BOM + b"bom:1\n", [b"bom:0", BOM + b"bom:1"])
    yield _lines("text-bom-only", BOM, [])
    yield _lines("text-crlf", b"crlf:0\r\ncrlf:1\r\n", [b"crlf:0\r", b"crlf:1\r"])
    yield _lines("text-lone-cr", b"cr:0\rstill\ncr:1\n", [b"cr:0\rstill", b"cr:1"])
    yield _lines("text-empty-lines", b"\n\nempty:2\n\n", [b"", b"", b"empty:2", b""])
    yield _lines("text-only-newline", b"\n", [b""])
    yield _lines("text-whitespace", b"  \n\t\nspace:2 \n", [b"  ", b"\t", b"space:2 "])
    yield _lines("text-no-end", b"end:0\nend:1", [b"end:0", b"end:1"])
    yield _lines("text-empty-file", b"", [])
    yield _lines("text-invalid-utf8", b"utf8:0 \xff\xfe\x80\nutf8:1 \xc3\n", [b"utf8:0 \xff\xfe\x80", b"utf8:1 \xc3"])
    yield _lines("text-nul", b"nul:0 a\0b\n\0\n", [b"nul:0 a\0b", b"\0"])
    separators = "sep:0 \u2028 \u2029 \u0085 \x0b \x0c \x1c".encode()
    yield _lines("text-other-line-ends", separators + b"\n", [separators])
    yield _lines(
        "text-5-mb-line", b"long:0 " + b"x" * (5 * MEGA) + b"\nlong:1\n", [b"long:0 " + b"x" * 5 * MEGA, b"long:1"]
    )
    if long:
        large = b"x" * (50 * MEGA)
        yield _lines("text-50-mb-line", b"huge:0\n" + large + b"\nhuge:2\n", [b"huge:0", large, b"huge:2"])
    yield _case(
        "text-too-large",
        {"lines.txt": b"large:0\nlarge:1 " + b"x" * 2000 + b"\nlarge:2\n"},
        {"lines.txt": (Delivered(b"large:0"), Nacked("record.too-large", "2008 bytes"), Delivered(b"large:2"))},
        batch={"max-record-bytes": "1000"},
    )
    yield _packed()
    yield _case(
        "text-names",
        {name: f"name:{i}\n".encode() for i, name in enumerate(NAMES)},
        {name: (Delivered(f"name:{i}".encode()),) for i, name in enumerate(NAMES)},
    )
    future, epoch = time.time() + 86400 * 400, 0.0
    yield _case(
        "text-clock",
        {"future.txt": b"clock:0\n", "epoch.txt": b"clock:1\n", "before.txt": b"clock:2\n", "now.txt": b"clock:3\n"},
        {
            name: (Delivered(f"clock:{i}".encode()),)
            for i, name in enumerate(["future.txt", "epoch.txt", "before.txt", "now.txt"])
        },
        times={"future.txt": future, "epoch.txt": epoch, "before.txt": -86400.0, "now.txt": float(LONG_AGO)},
    )


def _packed() -> Case:
    lines = b"".join(b"packed:%d %s\n" % (i, str(i * 7919 % 1009).encode()) for i in range(200))
    whole, more = gzip.compress(lines, mtime=0), gzip.compress(b"packed:more\n", mtime=0)
    rows = tuple(Delivered(line) for line in lines.splitlines())
    squeezed = zstd(lines)
    return _case(
        "text-packed",
        {
            "whole.gz": whole,
            "members.gz": whole + more,
            "nothing.gz": gzip.compress(b"", mtime=0),
            "empty.gz": b"",
            "garbage.gz": whole + b"\0garbage",
            "cut.gz": whole[:-9],
            "cut-early.gz": whole[:40],
            "text.gz": b"not packed at all\n",
            "whole.zst": squeezed,
            "cut.zst": squeezed[:-9],
            "text.zst": b"not packed at all\n",
        },
        {
            "whole.gz": rows,
            "members.gz": (*rows, Delivered(b"packed:more")),
            "nothing.gz": (),
            "empty.gz": (),
            "garbage.gz": (Unreadable(),),
            "cut.gz": (Unreadable(),),
            "cut-early.gz": (Unreadable(),),
            "text.gz": (Unreadable(),),
            "whole.zst": rows,
            "cut.zst": (Unreadable(),),
            "text.zst": (Unreadable(),),
        },
    )


def zstd(data: bytes) -> bytes:
    import pyarrow as pa

    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return packed


def _lines(name: str, content: bytes, lines: list[bytes]) -> Case:
    return _case(name, {"lines.txt": content}, {"lines.txt": tuple(Delivered(line) for line in lines)})


def _case(name: str, files: Mapping[str, bytes], outcomes: Mapping[str, tuple[Outcome, ...]], **more: Any) -> Case:
    return Case(name, "text", files, outcomes, **more)

"""`penstock.fs` with somebody else at work at the same time: readers of a file, makers of the same folder."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from penstock import fs


def test_a_reader_sees_the_old_content_or_the_new_and_never_a_part(tmp_path: Path) -> None:
    path = tmp_path / "note"
    contents = [bytes([n]) * 300_000 for n in range(20)]
    fs.replace(path, contents[0])
    ended = threading.Event()
    seen: set[bytes] = set()

    def read() -> None:
        while not ended.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for content in contents:
        fs.replace(path, content)
    ended.set()
    reader.join()
    assert seen
    assert seen <= set(contents)


def test_several_threads_may_make_the_same_folder(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    barrier = threading.Barrier(8)

    def make(n: int) -> None:
        barrier.wait()
        try:
            fs.make_folder(tmp_path / "a" / "b" / str(n))
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=make, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []
    assert sorted(os.listdir(tmp_path / "a" / "b")) == [str(n) for n in range(8)]

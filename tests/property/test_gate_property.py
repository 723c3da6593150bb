"""The gate over long streams, cut anywhere, with restarts and failed tries in between, against a window over the whole."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.gate import Ring, Window, pass_through


def model(window: Window, stream: list[bool]) -> int | None:
    last = deque[bool](maxlen=window.size)
    for place, nacked in enumerate(stream):
        last.append(nacked)
        if sum(last) > window.threshold:
            return place
    return None


windows = st.builds(Window, st.integers(0, 60), st.integers(0, 12))
streams = st.tuples(st.integers(1, 20), st.lists(st.integers(0, 19), max_size=300)).map(
    lambda drawn: [n < drawn[0] for n in drawn[1]]  # from streams that are nearly clean to streams of nacks alone
)


@given(window=windows, stream=streams, data=st.data())
def test_wherever_a_stream_is_cut_the_gate_closes_at_the_same_record(
    window: Window, stream: list[bool], data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8), label="cuts")  # equal ones are empty batches
    tries = data.draw(st.integers(1, 3), label="tries")
    saved: str | None = None
    found: int | None = None
    for start, end in pairwise([0, *sorted(cuts), len(stream)]):
        nacks = [n for n in range(end - start) if stream[start + n]]
        results = [pass_through(window, Ring.from_json(saved), end - start, nacks) for _ in range(tries)]
        assert results == [results[0]] * tries
        ring, closed = results[0]
        if closed is not None:
            assert ring == Ring.from_json(saved)
            found = start + closed
            break
        assert list(ring.back) == sorted(set(ring.back))
        assert all(0 < back < window.size for back in ring.back)
        saved = ring.to_json()
    assert found == model(window, stream)

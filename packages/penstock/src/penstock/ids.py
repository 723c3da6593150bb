"""The ids of many records of one source: as `record_id` makes them, with what all have in common done once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

_WHOLE = (0).to_bytes(8, "big")  # part 0: the record as its source gave it


def ids_of(source: str, positions: Iterable[bytes]) -> Iterator[str]:
    """`record_id(source, position)` of each, twice as fast."""
    begun = hashlib.blake2b(digest_size=16)
    name = source.encode()
    begun.update(len(name).to_bytes(8, "big") + name)
    for position in positions:
        made = begun.copy()
        made.update(b"%b%b%b" % (len(position).to_bytes(8, "big"), position, _WHOLE))
        yield made.hexdigest()

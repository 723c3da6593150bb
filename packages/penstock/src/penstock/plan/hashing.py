"""The delivery hash: the name of one batch of one lane at one destination, equal wherever and whenever it is computed."""

from __future__ import annotations

import hashlib
import json

from penstock.ranges import Ranges


def delivery_hash(pipeline: str, lane: str, epoch: int, destination: str, ranges: Ranges) -> str:
    """BLAKE2b-128 over ids, epoch and the sorted real positions, as 32 hex digits.

    The order in which a source listed its ranges does not count; everything else does. JSON keeps neighbouring texts
    apart, so no two different inputs have the same encoding.
    """
    positions = sorted(json.dumps(r.identity, sort_keys=True, separators=(",", ":")) for r in ranges)
    text = json.dumps([pipeline, lane, epoch, destination, positions], separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

"""What changes while a template runs on one record. Made anew for every record, in Spark's tasks."""

from __future__ import annotations

from typing import Any

from penstock.plan.gotemplate.errors import Failure
from penstock.plan.gotemplate.printing import LONGEST
from penstock_sdk.record import Record

STEPS = 1_000_000  # rounds of all loops together
DEPTH = 50  # of templates that call templates


class State:
    __slots__ = ("depth", "dollar", "dot", "out", "record", "size", "steps", "variables")

    def __init__(self, record: Record, variables: int) -> None:
        self.record = record
        self.dot: Any = None  # only looked at where it is not the record
        self.dollar: Any = None
        self.variables: list[Any] = [None] * variables if variables else []
        self.out: list[str] = []
        self.size = 0
        self.steps = 0
        self.depth = 0

    def write(self, text: str) -> None:
        self.size += len(text)
        if self.size > LONGEST:
            raise Failure(f"the template writes more than {LONGEST} characters")
        self.out.append(text)

    def step(self) -> None:
        self.steps += 1
        if self.steps > STEPS:
            raise Failure(f"the loops of the template take more than {STEPS} rounds")

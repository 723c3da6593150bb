"""`chaos` as a destination: writes down what it gets, answers as it was told. Runs in a connector host, or in a plugin program."""

from __future__ import annotations

from penstock.connectors.chaos.calls import append, described, record_call
from penstock.connectors.chaos.modes import Method
from penstock.connectors.chaos.settings import ChaosDestinationSettings
from penstock_sdk import Acks, Batch, Context, Destination, Rejected
from penstock_sdk.retry import retried


class ChaosDestination(Destination[ChaosDestinationSettings]):
    """It has `write_async`, since only that can leave an answer out; so it does itself what the SDK does about `Retry`."""

    def __init__(self, settings: ChaosDestinationSettings, context: Context) -> None:
        super().__init__(settings, context)
        s, stopping = settings, context.stopping
        self._open, self._close = Method("open", s.on_open, stopping), Method("close", s.on_close, stopping)
        self._write, self._answer = Method("write", s.on_write, stopping), Method("answer", s.on_answer, stopping)
        self._flush = Method("flush", s.on_flush, stopping)
        self._taken = 0

    def open(self) -> None:
        record_call(self.settings.calls, "open")
        self._open()

    def write_async(self, batch: Batch, acks: Acks) -> None:
        try:
            retried(lambda: self._enter(len(batch)), self.context.stopping)
        except Rejected as error:
            for i in range(len(batch)):
                acks.reject(i, str(error))
            return
        refused = {i for i in range(len(batch)) if self._is_nth(self.settings.reject, i)}
        unanswered = {i for i in range(len(batch)) if self._is_nth(self.settings.silent, i)}
        self._taken += len(batch)
        if self.settings.path is not None:
            kept = [described(record) for i, record in enumerate(batch) if i not in refused]
            append(self.settings.path, [{**line, "delivery": batch.delivery} for line in kept])
        self._answer(len(batch))  # written and not answered: where a crash hurts most
        places = [i for i in range(len(batch)) if i not in unanswered]
        for i in reversed(places) if self.settings.answers == "reversed" else places:
            if i in refused:
                acks.reject(i, "chaos: it was told to refuse this one")
            else:
                acks.ok(i)
            if self.settings.answers == "twice":
                acks.ok(i)

    def _enter(self, count: int) -> None:
        record_call(self.settings.calls, "write", count=count)
        self._write(count)

    def _is_nth(self, every: int, index: int) -> bool:
        return bool(every) and (self._taken + index + 1) % every == 0

    def flush(self) -> None:
        record_call(self.settings.calls, "flush")
        self._flush()

    def close(self) -> None:
        record_call(self.settings.calls, "close")
        self._close()

    @classmethod
    def created(cls, settings: ChaosDestinationSettings) -> None:
        record_call(settings.calls, "created")
        Method("created", settings.on_created)()

    @classmethod
    def updated(cls, before: ChaosDestinationSettings, after: ChaosDestinationSettings) -> None:
        record_call(after.calls, "updated", before=before.as_config())
        Method("updated", after.on_updated)()

    @classmethod
    def deleted(cls, settings: ChaosDestinationSettings) -> None:
        record_call(settings.calls, "deleted")
        Method("deleted", settings.on_deleted)()

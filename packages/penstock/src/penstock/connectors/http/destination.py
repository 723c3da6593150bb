"""`http` as a destination. Runs in a connector host, or in a plugin program.

`write` goes over a batch in rounds. What a round has delivered or refused is settled for good; on trouble the rest waits, and if the round
got nothing through at all the host is asked to call again (`Retry`), with what is settled kept in memory.
"""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from penstock.connectors.http.address import Resolver, find
from penstock.connectors.http.body import Bodies, Unfit
from penstock.connectors.http.connection import Answer, Trouble
from penstock.connectors.http.outcome import Outcome, Statuses, excerpt, retry_after
from penstock.connectors.http.progress import Progress
from penstock.connectors.http.session import Request, Session, credentials
from penstock.connectors.http.settings import HttpDestinationSettings
from penstock_sdk import Batch, Context, Destination, Record, Rejected, Retry, Stop, record_id
from penstock_sdk.retry import Backoff

ORIGIN = "conduit.source.connector.id"  # metadata, from foreign hosts


class Again(Exception):
    """The rest of the batch has to wait."""

    def __init__(self, text: str, seconds: float = 0.0) -> None:
        super().__init__(text)
        self.seconds = seconds


class HttpDestination(Destination[HttpDestinationSettings]):
    resolver: Resolver = staticmethod(find)

    def __init__(self, settings: HttpDestinationSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._bodies, self._statuses = Bodies(settings), Statuses(settings)
        shown = [settings.token, settings.password, *settings.headers.values(), *credentials(settings).values()]
        texts = {text for each in shown for text in (each, each.rpartition(" ")[2]) if len(text) >= 4}
        self._secrets = tuple(sorted(texts, key=len, reverse=True))
        self._sessions: list[Session] = []
        self._pool: ThreadPoolExecutor | None = None
        self._kept: Progress | None = None

    def open(self) -> None:
        """Nothing is asked of the server: the first record will show whether it is there."""
        tls = self._tls()
        self._sessions = [
            Session(self.settings, self._bodies.content_type, tls, self.context.stopping, self.resolver)
            for _ in range(self.settings.concurrency)
        ]
        if self.settings.concurrency > 1:
            self._pool = ThreadPoolExecutor(self.settings.concurrency, "http")

    def _tls(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.settings.tls_ca)
        except OSError as error:  # ssl's errors are among them
            raise Stop(f"tls-ca: {self.settings.tls_ca} can't be used", why=error.strerror or str(error)) from error

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        for session in self._sessions:
            session.close()

    # -- rounds -------------------------------------------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        progress = self._kept if self._kept is not None and self._kept.is_of(batch) else Progress(batch)
        self._kept = progress
        while left := progress.open():
            try:
                self._round(progress, left)
            except Again as again:
                stuck = len(progress.open()) == len(left)
                text = f"{self._sessions[0].url.origin}: {again}"
                self.context.log.warn("records wait to be sent again", error=text, count=len(progress.open()))
                stopped = self.context.stopping.wait(again.seconds or (0 if stuck else Backoff().pause(0)))
                if stuck or stopped:
                    raise Retry(text) from again
        self._kept = None
        if refused := progress.refused():
            raise Rejected(refused)

    def _round(self, progress: Progress, left: Sequence[int]) -> None:
        if self.settings.requests == "batch":
            self._send_together(progress, left)
        elif self._pool is None:
            self._send_each(self._sessions[0], progress, left, threading.Event())
        else:
            self._send_at_once(progress, left, self._pool)

    # -- one request per record ---------------------------------------------------------------------------------------------

    def _send_at_once(self, progress: Progress, left: Sequence[int], pool: ThreadPoolExecutor) -> None:
        """Records of the same key go through the same session, and so stay in order."""
        shares: list[list[int]] = [[] for _ in self._sessions]
        for i in left:
            key = progress.batch.records[i].key
            at = i if key is None else hash(key if isinstance(key, bytes) else json.dumps(key, default=str))
            shares[at % len(shares)].append(i)
        ended = threading.Event()
        work = [
            pool.submit(self._send_each, session, progress, share, ended)
            for session, share in zip(self._sessions, shares, strict=True)
        ]
        errors = [error for each in work if (error := each.exception()) is not None]
        waits = [error for error in errors if isinstance(error, Again)]
        for error in errors:
            if not isinstance(error, Again):
                raise error
        if waits:
            raise max(waits, key=lambda again: again.seconds)

    def _send_each(self, session: Session, progress: Progress, share: Sequence[int], ended: threading.Event) -> None:
        """Until one has trouble, here or beside: then nothing is sent that would be after it."""
        try:
            for i in share:
                if ended.is_set():
                    return
                self._send_one(session, progress, i)
        except BaseException:
            ended.set()
            raise

    def _send_one(self, session: Session, progress: Progress, index: int) -> None:
        record = progress.batch.records[index]
        try:
            body = self._bodies.one(record)
        except Unfit as error:
            progress.refuse(index, str(error))
            return
        why = self._sent(session, Request(body, self._key(record), progress.batch.delivery))
        if why:
            progress.refuse(index, why)
        else:
            progress.deliver(index)

    # -- one request per batch ----------------------------------------------------------------------------------------------

    def _send_together(self, progress: Progress, left: Sequence[int]) -> None:
        """A request that is refused is halved until the bad record is alone, from front to back: a half that was accepted is settled."""
        items: list[tuple[int, bytes, str]] = []
        for i in left:
            record = progress.batch.records[i]
            try:
                items.append((i, self._bodies.one(record), self._key(record)))
            except Unfit as error:
                progress.refuse(i, str(error))
        waiting = [items] if items else []
        while waiting:
            part = waiting.pop()
            key = hashlib.blake2b("".join(key for _, _, key in part).encode(), digest_size=16).hexdigest()
            body = self._bodies.joined([item for _, item, _ in part])
            why = self._sent(self._sessions[0], Request(body, key, progress.batch.delivery))
            if not why:
                for i, _, _ in part:
                    progress.deliver(i)
            elif len(part) == 1:
                progress.refuse(part[0][0], why)
            else:
                half = len(part) // 2
                waiting += [part[half:], part[:half]]

    # -- a request ----------------------------------------------------------------------------------------------------------

    def _sent(self, session: Session, request: Request) -> str:
        """Empty: delivered. Else why what is in it was refused."""
        if self.context.stopping.is_set():
            raise Again("the connector is being stopped")
        try:
            answer = session.send(request)
        except Trouble as error:
            raise Again(str(error)) from error
        outcome = self._statuses.outcome(answer.status)
        if outcome is Outcome.DELIVERED:
            return ""
        said = self._said(answer)
        if outcome is Outcome.REJECT:
            return said
        if outcome is Outcome.STOP:
            raise Stop(
                f"{session.url.origin}: {said}",
                hint="no record is to blame for this status; reject-on could say otherwise",
            )
        raise Again(said, retry_after(answer.headers, self.settings.longest_wait.total_seconds()))

    def _said(self, answer: Answer) -> str:
        text = excerpt(answer.body, self._secrets)
        return f"the server answered with {answer.status}{': ' + text if text else ''}"

    def _key(self, record: Record) -> str:
        """The record's id. Without a source's name in it, equal positions of two pipelines would be one to the receiver."""
        if record.source:
            return record.id
        return record_id(record.metadata.get(ORIGIN) or self.context.connector_id, record.position, record.part)

"""What sources and destinations have in common as the protocol sees them: settings, and the calls for the moments in a connector's life."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from penstock_protocol.interfaces import PluginError
from penstock_sdk.calls import Calls
from penstock_sdk.context import Context
from penstock_sdk.problems import SettingsError

CLOSE_PATIENCE = 10.0  # seconds that the author's `close` waits for calls that still run


class Adapter:
    """`kind` is the author's class; it is made when it is opened."""

    def __init__(self, kind: Any, context: Context | None = None) -> None:
        self._kind = kind
        self._context = Context() if context is None else context
        self._settings: Any = None
        self._made: Calls | None = None
        self._ready = False  # it was opened well
        self._torn = False
        self._idle = threading.Condition()
        self._running = 0  # calls of the author's code

    def configure(self, config: Mapping[str, str]) -> None:
        if self._torn:
            raise PluginError("it was torn down before")
        if self._settings is not None:
            raise PluginError("it was configured before")
        self._settings = self._parsed(config)

    def _make(self) -> None:
        if self._settings is None:
            raise PluginError("it has to be configured before it is opened")
        if self._made is not None:
            raise PluginError("it was opened before")
        self._made = Calls(self._kind(self._settings, self._context))

    def _check_open(self) -> None:
        if self._made is None or not self._ready:
            raise PluginError("it is not open")

    def _call(self, name: str, *arguments: Any) -> Any:
        """The author's code. Several threads may be in it; `close` is the last."""
        with self._idle:
            made = self._made
            if made is None:
                raise PluginError("it is not open")
            self._running += 1
        try:
            return made(name, *arguments)
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def teardown(self) -> None:
        self._torn = True
        self._context.stopping.set()
        with self._idle:
            made, self._made = self._made, None
            if not self._idle.wait_for(lambda: not self._running, CLOSE_PATIENCE):
                self._context.log.warn("it is closed while it still runs", calls=self._running)
        if made is not None:
            try:
                made("close")
            finally:
                made.end()

    def on_created(self, config: Mapping[str, str]) -> None:
        Calls(self._kind)("created", self._parsed(config))

    def on_updated(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        Calls(self._kind)("updated", self._parsed(before), self._parsed(after))

    def on_deleted(self, config: Mapping[str, str]) -> None:
        Calls(self._kind)("deleted", self._parsed(config))

    def _parsed(self, config: Mapping[str, str]) -> Any:
        """The author's settings; what is wrong with them in a line each."""
        try:
            return self._kind.settings_type.parse(config)
        except SettingsError as e:
            raise PluginError(str(e)) from e

"""What sources and destinations have in common as the protocol sees them: settings, and the calls for the moments in a connector's life."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock_protocol.interfaces import PluginError
from penstock_sdk.calls import Calls
from penstock_sdk.context import Context
from penstock_sdk.problems import SettingsError


class Adapter:
    """`kind` is the author's class; it is made when it is opened."""

    def __init__(self, kind: Any, context: Context | None = None) -> None:
        self._kind = kind
        self._context = Context() if context is None else context
        self._settings: Any = None
        self._made: Calls | None = None

    def configure(self, config: Mapping[str, str]) -> None:
        if self._settings is not None:
            raise PluginError("it was configured before")
        self._settings = self._parsed(config)

    def _make(self) -> Calls:
        if self._settings is None:
            raise PluginError("it has to be configured before it is opened")
        if self._made is not None:
            raise PluginError("it was opened before")
        self._made = Calls(self._kind(self._settings, self._context))
        return self._made

    def _opened(self) -> Calls:
        if self._made is None:
            raise PluginError("it is not open")
        return self._made

    def teardown(self) -> None:
        self._context.stopping.set()
        if self._made is not None:
            made, self._made = self._made, None
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

"""What a connector has to say, with a level and fields. In a plugin program it goes to standard error as the lines that hosts read; in a
process with others it goes the way of Python's own logging. Safe to use from several threads."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

LEVELS = {"trace": 5, "debug": 10, "info": 20, "warn": 30, "error": 40}


class Log:
    """`log.info("connected", server=name)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, text: str, **fields: Any) -> None:
        self._logger.debug(text, extra={"fields": fields})

    def info(self, text: str, **fields: Any) -> None:
        self._logger.info(text, extra={"fields": fields})

    def warn(self, text: str, **fields: Any) -> None:
        self._logger.warning(text, extra={"fields": fields})

    def error(self, text: str, **fields: Any) -> None:
        self._logger.error(text, extra={"fields": fields})


class Lines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        level = {"warning": "warn", "critical": "error"}.get(record.levelname.lower(), record.levelname.lower())
        time = datetime.fromtimestamp(record.created, UTC).isoformat()
        said = {"@level": level, "@message": record.getMessage(), "@timestamp": time, "@module": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            said["error"] = str(record.exc_info[1])
        return json.dumps({**said, **getattr(record, "fields", {})}, default=str)


def to_host(level: str, stream: TextIO | None = None) -> None:
    """For a plugin program: everything that is logged, by whichever library, reaches the host. A level that is not known: all of it."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(Lines())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(LEVELS.get(level.lower(), 1))

"""Settings of `file`, declared once: Conduit's names and defaults, those of its SDK included, so that its pipeline files are read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Literal

from penstock_sdk import Settings, setting

_NO_EFFECT = "Taken for Conduit's sake, without effect: "


class _Batches(Settings):
    sdk_batch_size: int = setting(
        "At most so many records at once; 0: no limit of its own.", default=0, least=0, name="sdk.batch.size"
    )
    sdk_batch_delay: timedelta = setting(
        f"{_NO_EFFECT}nothing is held back to fill a batch.", default=timedelta(0), name="sdk.batch.delay"
    )


class FileSourceSettings(_Batches):
    """Reads a file as it grows, line by line. A last line without its end is given at once: `lines` never cuts a line."""

    path: Path = setting("The file to read. It may be missing at first, and is waited for.")
    sdk_schema_extract_key_enabled: bool = setting(
        f"{_NO_EFFECT}keys are raw and have no schema.", default=False, name="sdk.schema.extract.key.enabled"
    )
    sdk_schema_extract_payload_enabled: bool = setting(
        f"{_NO_EFFECT}payloads are raw and have no schema.", default=False, name="sdk.schema.extract.payload.enabled"
    )
    sdk_schema_extract_type: Literal["avro"] = setting(
        f"{_NO_EFFECT}there is no schema.", default="avro", name="sdk.schema.extract.type"
    )
    sdk_schema_extract_key_subject: str = setting(
        f"{_NO_EFFECT}there is no schema.", default="key", name="sdk.schema.extract.key.subject"
    )
    sdk_schema_extract_payload_subject: str = setting(
        f"{_NO_EFFECT}there is no schema.", default="payload", name="sdk.schema.extract.payload.subject"
    )
    sdk_schema_context_enabled: bool = setting(
        f"{_NO_EFFECT}there is no schema.", default=True, name="sdk.schema.context.enabled"
    )
    sdk_schema_context_name: str = setting(
        f"{_NO_EFFECT}there is no schema.", default="", name="sdk.schema.context.name"
    )


class FileDestinationSettings(_Batches):
    """Appends a line of JSON for every record."""

    path: Path = setting("The file to append to. It is made if it is missing; its folder is not.")
    sdk_record_format: Literal["opencdc/json"] = setting(
        "What a line is. Conduit's other formats, `debezium/json` and `template`, are not made here.",
        default="opencdc/json",
        name="sdk.record.format",
    )
    sdk_record_format_options: str = setting(
        f"{_NO_EFFECT}the format has no options.", default="", name="sdk.record.format.options"
    )
    sdk_rate_perSecond: float = setting(  # noqa: N815 - as in the name on the wire
        "Has to be 0: the rate is not limited here.", default=0.0, least=0.0, name="sdk.rate.perSecond"
    )
    sdk_rate_burst: int = setting(f"{_NO_EFFECT}the rate is not limited.", default=0, least=0, name="sdk.rate.burst")
    sdk_schema_extract_key_enabled: bool = setting(
        "A key with a schema is to be decoded, which is not done here: such a record is refused. `false` writes its bytes.",
        default=True,
        name="sdk.schema.extract.key.enabled",
    )
    sdk_schema_extract_payload_enabled: bool = setting(
        "A payload with a schema is to be decoded, which is not done here: such a record is refused. `false` writes its bytes.",
        default=True,
        name="sdk.schema.extract.payload.enabled",
    )

    def check(self) -> Iterable[str]:
        if self.sdk_rate_perSecond:
            yield "sdk.rate.perSecond: the rate is not limited here; leave it at 0"

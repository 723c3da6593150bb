"""Settings of `files`, declared once: parsing, checks and documentation come from here. No Spark."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, model_validator

from penstock.config import Duration, Settings, Size

Format = Literal["text", "json", "csv", "parquet"]
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def _local(path: str) -> str:
    found = _SCHEME.match(path)
    if found and found[1].lower() == "file":
        raise ValueError(f"must be a plain path, without '{found[1]}:'")
    if found:
        raise ValueError(
            f"must be on a local or mounted file system: '{found[1]}:' is not supported yet, since exactly-once delivery"
            " rests on renames that object stores and HDFS clients do not give; mount it or copy the files"
        )
    return path


def _one_character(value: str) -> str:
    value = {"\\t": "\t", "tab": "\t"}.get(value, value)
    if len(value) != 1 or value in '"\r\n\0\\':
        raise ValueError("must be one character, and neither a quote, a backslash nor a line break")
    return value


def _schema(value: str) -> str:
    from penstock.plan.schema import Schema

    Schema.parse(value)  # its errors begin with "must"
    return value


Path = Annotated[str, AfterValidator(_local)]
Delimiter = Annotated[str, AfterValidator(_one_character)]
Declared = Annotated[str, AfterValidator(_schema)]


class FilesSourceSettings(Settings):
    """Reads every settled file of a folder once: lines of text, JSON lines, CSV or Parquet.

    The oldest file comes first. Names that start with `.` or `_`, or end in `.tmp` or `.part`, are passed over; `.gz` and
    `.zst` are unpacked. The lines of a file keep their order.
    """

    path: Path = Field(
        min_length=1,
        description="A folder, one file, or a glob: `in/*.json`, `in/**/*.csv`. Only local and mounted file systems: `s3://`,"
        " `hdfs://` and the like are refused.",
    )
    format: Format = Field("text", description="What a file holds: lines of text, JSON lines, CSV or Parquet.")
    recursive: bool = Field(False, description="Read sub-folders too. Folders named `key=value` are always read.")
    schema_: Declared | None = Field(
        None,
        alias="schema",
        description="json, csv: the fields as Spark writes them, e.g. `id BIGINT, at TIMESTAMP, tags ARRAY<STRING>`.",
    )
    header: bool = Field(
        True,
        description="csv: the first line of every file names its columns. Without one they are `_c0`, `_c1`, …, or the names in"
        " `schema`.",
    )
    delimiter: Delimiter = Field(
        ",", description="csv: what stands between two values: one character; `\\t` or `tab` for a tab."
    )
    multi_line: bool = Field(
        False, description="csv: quoted values may hold line breaks. A file is then read by one task."
    )
    columns: str | None = Field(None, description="parquet: only these columns, with commas between them.")
    settle: Duration = Field(
        1.0,
        ge=0,
        description="A file is taken when its size and modification time have not changed for this long; `0s` takes it at once.",
    )
    on_change: Literal["stop", "ignore", "reread"] = Field(
        "stop", description="What to do when a file that was taken has changed since."
    )
    after_ack: Literal["keep", "move", "delete"] = Field(
        "keep", description="What happens to a file once everything in it is settled at every destination."
    )
    move_to: str | None = Field(
        None, description="The folder for `after-ack: move`; it is made when it is missing. Use the same file system."
    )

    @model_validator(mode="after")
    def _move_needs_a_target(self) -> FilesSourceSettings:
        if (self.after_ack == "move") != (self.move_to is not None):
            raise ValueError("must have both `after-ack: move` and `move-to`, or neither")
        return self

    @model_validator(mode="after")
    def _of_the_format(self) -> FilesSourceSettings:
        csv = ("csv",)
        own = {"schema_": ("json", "csv"), "header": csv, "delimiter": csv, "multi_line": csv, "columns": ("parquet",)}
        _refuse_others(self, self.format, own)
        if self.format == "csv" and self.schema_ is not None:
            from penstock.connectors.files.csv import refuse_types

            refuse_types(self.schema_)
        return self


class FilesDestinationSettings(Settings):
    """Writes files into a folder; each appears whole, once.

    A file appears by rename and never changes afterwards; you may move or delete it as soon as you see it. Read in the
    order of their names, the files hold the lines of each input file in their order.
    """

    path: Path = Field(
        min_length=1,
        description="The folder to write to; it is made when it is missing. `out/{namespace}` makes a folder per value: `{namespace}`,"
        " `{operation}`, `{source}`, `{metadata.KEY}`, and `{after.FIELD}` of a typed payload.",
    )
    format: Format = Field(
        "text",
        description="One line per record (the payload as it is, or as JSON or CSV), or Parquet. Typed payloads need `json.encode` to"
        " become text.",
    )
    schema_: Declared | None = Field(
        None,
        alias="schema",
        description="csv, parquet: the fields that open payloads are given; what does not fit is a nack.",
    )
    header: bool = Field(True, description="csv: every file begins with the names of its columns.")
    delimiter: Delimiter = Field(
        ",", description="csv: what stands between two values: one character; `\\t` or `tab` for a tab."
    )
    compression: Literal["none", "gzip", "snappy", "zstd", "lz4"] | None = Field(
        None,
        description="`gzip` or `none` for lines, by default `none`; for Parquet any of them, by default `snappy`.",
    )
    target_file_size: Annotated[Size, Field(gt=0)] | None = Field(
        None,
        description="About how large files should be, e.g. `128MB`. A batch is then written by fewer tasks, or in more files. Without it"
        " a task of Spark writes one file per batch.",
    )

    @model_validator(mode="after")
    def _of_the_format(self) -> FilesDestinationSettings:
        csv = ("csv",)
        _refuse_others(self, self.format, {"schema_": ("csv", "parquet"), "header": csv, "delimiter": csv})
        if self.format != "parquet" and self.compression not in (None, "none", "gzip"):
            raise ValueError(f"must have `compression: gzip` or none: Spark writes no lines with {self.compression}")
        return self

    @model_validator(mode="after")
    def _template(self) -> FilesDestinationSettings:
        from penstock.connectors.files.template import Template

        template = Template.parse(self.path)
        typed = self.format in ("csv", "parquet") or self.schema_ is not None
        if not typed and any(name.startswith("after.") for name in template.names) and self.format == "text":
            raise ValueError("must have {after.…} in its `path` only where payloads are typed: not with `format: text`")
        return self


def _refuse_others(settings: BaseModel, format: str, own: dict[str, tuple[str, ...]]) -> None:
    for name, formats in own.items():
        if name in settings.model_fields_set and format not in formats:
            given = name.rstrip("_").replace("_", "-")
            raise ValueError(f"must have `{given}` only with `format: {' or '.join(formats)}`, and it is `{format}`")

"""Settings of `files`: what belongs to a format, what is no local path, and the words with which the rest is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.connectors.files.settings import FilesDestinationSettings, FilesSourceSettings

BOTH = pytest.mark.parametrize("settings_class", [FilesSourceSettings, FilesDestinationSettings])


def refused(settings_class: type[Any], **settings: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        settings_class(**{"path": "/x", **settings})
    [problem] = caught.value.errors()
    text = str(problem["msg"]).removeprefix("Value error, ")
    assert problem["type"] != "value_error" or text.startswith("must "), text
    return text


@BOTH
@pytest.mark.parametrize(
    "path, words",
    [
        ("s3://bucket/x", "'s3:' is not supported yet"),
        ("s3a://bucket/x", "'s3a:' is not supported yet"),
        ("S3://bucket/x", "'S3:' is not supported yet"),
        ("hdfs://name:9000/x", "'hdfs:' is not supported yet"),
        ("hdfs:/x", "'hdfs:' is not supported yet"),
        ("gs://bucket", "exactly-once delivery rests on renames"),
        ("abfss://c@a.dfs.core.windows.net/x", "mount it or copy the files"),
        ("https://example.org/x", "'https:' is not supported yet"),
        ("dbfs:/x", "'dbfs:' is not supported yet"),
        ("file:///x", "must be a plain path, without 'file:'"),
        ("file:/x", "must be a plain path, without 'file:'"),
        ("FILE:/x", "must be a plain path, without 'FILE:'"),
    ],
)
def test_a_path_with_a_scheme_is_refused_with_a_reason(settings_class: type[Any], path: str, words: str) -> None:
    assert words in refused(settings_class, path=path)


@BOTH
@pytest.mark.parametrize("path", ["/x", "x", "./x", "a:b/c", "a/s3://x", "12:30/x", "x:y", "C:/x", ":/x", "~/x"])
def test_a_name_with_a_colon_is_a_plain_path(settings_class: type[Any], path: str) -> None:
    assert settings_class(path=path).path == path


SOURCE: dict[str, tuple[Any, set[str]]] = {
    "schema": ("a INT", {"json", "csv"}),
    "header": (False, {"csv"}),
    "delimiter": (";", {"csv"}),
    "multi_line": (True, {"csv"}),
    "columns": ("a, b", {"parquet"}),
}
DESTINATION: dict[str, tuple[Any, set[str]]] = {
    "schema": ("a INT", {"csv", "parquet"}),
    "header": (False, {"csv"}),
    "delimiter": (";", {"csv"}),
}


@pytest.mark.parametrize("format", ["text", "json", "csv", "parquet"])
@pytest.mark.parametrize(
    "settings_class, name, value, formats",
    [
        *((FilesSourceSettings, name, value, formats) for name, (value, formats) in SOURCE.items()),
        *((FilesDestinationSettings, name, value, formats) for name, (value, formats) in DESTINATION.items()),
    ],
)
def test_a_setting_that_does_not_belong_to_the_format_is_refused_by_name(
    settings_class: type[Any], name: str, value: Any, formats: set[str], format: str
) -> None:
    if format in formats:
        settings_class(path="/x", format=format, **{name: value})
        return
    text = refused(settings_class, format=format, **{name: value})
    assert f"`{name.replace('_', '-')}`" in text
    assert all(f in text for f in formats)
    assert f"it is `{format}`" in text


@pytest.mark.parametrize("format", ["text", "json", "csv"])
@pytest.mark.parametrize("compression", ["snappy", "zstd", "lz4"])
def test_lines_are_written_plain_or_as_gzip(format: str, compression: str) -> None:
    for fine in (None, "none", "gzip"):
        FilesDestinationSettings(path="/x", format=format, compression=fine)
    assert f"no lines with {compression}" in refused(FilesDestinationSettings, format=format, compression=compression)
    FilesDestinationSettings(path="/x", format="parquet", compression=compression)


@pytest.mark.parametrize(
    "given, delimiter", [(",", ","), (";", ";"), ("\\t", "\t"), ("tab", "\t"), ("|", "|"), ("ü", "ü")]
)
def test_a_delimiter_is_one_character(given: str, delimiter: str) -> None:
    for settings_class in (FilesSourceSettings, FilesDestinationSettings):
        assert settings_class(path="/x", format="csv", delimiter=given).delimiter == delimiter


@BOTH
@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\\", "\n", "\r", "\0"])
def test_what_can_not_be_a_delimiter_is_refused(settings_class: type[Any], delimiter: str) -> None:
    assert "one character" in refused(settings_class, format="csv", delimiter=delimiter)


@BOTH
def test_a_schema_that_does_not_parse_is_refused(settings_class: type[Any]) -> None:
    refused(settings_class, format="csv", schema="a NO_SUCH_TYPE")


@pytest.mark.parametrize("type_", ["ARRAY<INT>", "MAP<STRING, INT>", "STRUCT<a: INT>", "BINARY"])
def test_what_a_line_of_csv_can_not_hold_is_refused_in_its_schema(type_: str) -> None:
    assert "'b'" in refused(FilesSourceSettings, format="csv", schema=f"a INT, b {type_}")
    FilesSourceSettings(path="/x", format="json", schema=f"a INT, b {type_}")  # type: ignore[call-arg]


def test_a_template_is_looked_at_with_the_settings() -> None:
    assert "must have only" in refused(FilesDestinationSettings, path="/x/{y}")
    assert "not with `format: text`" in refused(FilesDestinationSettings, path="/x/{after.a}")
    for format in ("json", "csv", "parquet"):
        FilesDestinationSettings(path="/x/{after.a}", format=format)

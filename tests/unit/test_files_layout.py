"""What is known of a file before Spark reads it: headers of CSV, footers of Parquet, and why a file can't be read at all."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.files import layout as module
from penstock.connectors.files.layout import Layout, layout_of
from penstock.connectors.files.opening import compressed
from penstock.connectors.files.settings import FilesSourceSettings
from penstock.errors import UnreadableFile


def found(path: Path, root: Path | None = None, **settings: Any) -> Layout:
    return layout_of(str(path), root or path.parent, FilesSourceSettings(path=str(path.parent), **settings))


def csv(folder: Path, data: bytes | str, name: str = "a.csv", **settings: Any) -> Layout:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return found(path, folder, format="csv", **settings)


def parquet(path: Path, table: pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


# -- csv ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, names",
    [
        ("a,b\n1,2\n", ("a", "b")),
        ("a,b", ("a", "b")),
        ("a,b\r\n1,2\r\n", ("a", "b")),
        ("\ufeffa,b\n", ("a", "b")),
        ("only\n", ("only",)),
        ('"a, b","say ""x"""\n', ("a, b", 'say "x"')),
        (" a , b\n", (" a ", " b")),
        ("ä,日本\n", ("ä", "日本")),
        ("a.b,c`d\n", ("a.b", "c`d")),
        ("A,a\n", ("A", "a")),
        ("", ("_",)),  # nothing is read from it, whatever its columns are called
    ],
)
def test_the_columns_are_what_the_first_line_names(tmp_path: Path, text: str, names: tuple[str, ...]) -> None:
    made = csv(tmp_path, text)
    assert (made.names, made.wrong) == (names, "")
    made.refuse_unknown()


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_the_delimiter_is_the_one_that_was_set(tmp_path: Path, delimiter: str) -> None:
    assert csv(tmp_path, f"a{delimiter}b,c\n", delimiter=delimiter).names == ("a", "b,c")


@pytest.mark.parametrize("pack", [("a.csv.gz", gzip.compress), ("a.csv.zst", pa.Codec("zstd").compress)])
def test_the_header_of_a_compressed_file_is_read_too(tmp_path: Path, pack: tuple[str, Any]) -> None:
    name, compress = pack
    data = compress(b"a,b\n1,2\n" * 10)
    assert csv(tmp_path, data if isinstance(data, bytes) else data.to_pybytes(), name).names == ("a", "b")


@pytest.mark.parametrize(
    "text, names",
    [
        ("1,2,3\n", ("_c0", "_c1", "_c2")),
        ('"x, y",2\n', ("_c0", "_c1")),
        ("\n\r\n1,2\n", ("_c0", "_c1")),  # a blank line is no record
        ("\n", ("_",)),
        ("", ("_",)),
    ],
)
def test_without_a_header_columns_are_numbered(tmp_path: Path, text: str, names: tuple[str, ...]) -> None:
    assert csv(tmp_path, text, header=False).names == names


def test_without_a_header_columns_are_those_of_the_schema(tmp_path: Path) -> None:
    assert csv(tmp_path, "1,2\n", header=False, schema="x INT, y STRING").names == ("x", "y")
    inside = csv(tmp_path, "1\n", "x=3/a.csv", header=False, schema="x INT, y STRING")
    assert (inside.names, inside.partitions) == (("y",), ("x",))


@pytest.mark.parametrize(
    "text, settings, why",
    [
        ("\n1,2\n", {}, "is blank"),
        ("a,\n", {}, "no name for column 2"),
        ("a, \n", {}, "no name for column 2"),
        (",a\n", {}, "no name for column 1"),
        ("a,b,a\n", {}, "the column 'a' twice"),
        ("a,b\n", {"schema": "a INT"}, "it has a column 'b', which the `schema` does not name"),
        ("a\n", {"schema": "a INT, b INT"}, "it has no column 'b', which the `schema` names"),
        (b"a,\xff\n", {}, "utf-8"),
        (b"\x1f\x8b damaged", {"name": "a.csv.gz"}, ""),
        (b"(\xb5/\xfd damaged", {"name": "a.csv.zst"}, ""),
    ],
)
def test_a_file_whose_columns_can_not_be_known_says_why_and_is_refused(
    tmp_path: Path, text: bytes | str, settings: dict[str, Any], why: str
) -> None:
    made = csv(tmp_path, text, **settings)
    assert not made.known
    assert why in made.wrong
    assert "\n" not in made.wrong
    with pytest.raises(UnreadableFile) as caught:
        made.refuse_unknown()
    assert caught.value.path.startswith(str(tmp_path / "a.csv"))
    assert caught.value.why == made.wrong


def test_a_first_line_without_an_end_is_not_read_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEADER", 100_000)
    assert "more than 100000 bytes" in csv(tmp_path, "x" * 300_000).wrong
    assert "longer than 100000 bytes" in csv(tmp_path, '"' + "x\n" * 150_000, multi_line=True).wrong
    assert csv(tmp_path, "x" * 30_000 + "\n" + "y" * 300_000).known


def test_a_long_value_in_the_first_line_is_no_surprise(tmp_path: Path) -> None:
    """Python's own csv gives up at 128 KiB; Spark does not."""
    assert csv(tmp_path, f"1,{'x' * 200_000}\n", header=False).names == ("_c0", "_c1")


@pytest.mark.parametrize("text", ["a,b\rc\n1,2\n", "a,b\0c\n"])
def test_a_control_character_in_a_header_ends_no_pipeline(tmp_path: Path, text: str) -> None:
    """Whether such a file can be read or not: it is said of this file alone."""
    made = csv(tmp_path, text)
    assert made.names or made.wrong


def test_a_line_break_in_a_quoted_value_does_not_end_the_first_line_where_it_may_stand(tmp_path: Path) -> None:
    text = '1,"two\nlines",3\n4,5,6\n'
    assert csv(tmp_path, text, header=False, multi_line=True).names == ("_c0", "_c1", "_c2")
    assert csv(tmp_path, '"a\nb",c\n1,2\n', multi_line=True).names == ("a\nb", "c")


def test_a_quote_that_is_not_closed_makes_no_header(tmp_path: Path) -> None:
    assert not csv(tmp_path, '"a\nb",c\n1,2\n').known
    assert not csv(tmp_path, '"a\nb,c\n1,2\n', multi_line=True).known


@pytest.mark.parametrize("first", [b'1,"a', b"1,\xff", b"1", b"1,2,3", b"1,a\rb"])
def test_a_bad_first_record_costs_no_file_whose_columns_are_known(tmp_path: Path, first: bytes) -> None:
    """It is one nack like any other: nothing has to be learned from it."""
    made = csv(tmp_path, first + b"\n1,2\n", header=False, schema="x INT, y STRING")
    assert (made.names, made.wrong) == (("x", "y"), "")


def test_names_of_folders_are_columns_of_the_file(tmp_path: Path) -> None:
    made = csv(tmp_path, "a\n1\n", "day=1/country=de%2Fat/a.csv")
    assert (made.names, made.partitions) == (("a",), ("day", "country"))
    assert csv(tmp_path, "a\n", "day=1/a.csv", schema="a INT, day INT").known


# -- parquet --------------------------------------------------------------------------------------------------------


def test_rows_of_parquet_are_known_from_the_footer(tmp_path: Path) -> None:
    made = found(parquet(tmp_path / "day=1" / "a.parquet", pa.table({"a": [1, 2, 3]})), tmp_path, format="parquet")
    assert (made.rows, made.names, made.partitions, made.known) == (3, (), ("day",), True)
    assert found(parquet(tmp_path / "b", pa.table({"a": pa.array([], pa.int64())})), format="parquet").rows == 0


def test_parquet_files_of_one_schema_can_be_read_together_and_others_not(tmp_path: Path) -> None:
    tables = {
        "one": pa.table({"a": [1], "b": ["x"]}),
        "same": pa.table({"a": [2, 3], "b": ["y", "z"]}),
        "type": pa.table({"a": ["1"], "b": ["x"]}),
        "more": pa.table({"a": [1], "b": ["x"], "c": [1]}),
        "name": pa.table({"A": [1], "b": ["x"]}),
    }
    keys = {n: found(parquet(tmp_path / n, t), format="parquet").key for n, t in tables.items()}
    assert keys["one"] == keys["same"]
    assert len({keys[n] for n in ("one", "type", "more", "name")}) == 4


@pytest.mark.parametrize("data, why", [(b"", "it is empty"), (b"PAR1", ""), (b"no parquet at all", "")])
def test_what_is_no_parquet_says_so(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "a").write_bytes(data)
    made = found(tmp_path / "a", format="parquet")
    assert not made.known
    assert why in made.wrong
    with pytest.raises(UnreadableFile):
        made.refuse_unknown()


def test_a_parquet_file_that_was_cut_off_says_so(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a", pa.table({"a": list(range(1000))}))
    path.write_bytes(path.read_bytes()[:-10])
    assert not found(path, format="parquet").known


# -- any format -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["text", "json", "csv", "parquet"])
def test_a_file_that_is_gone_is_no_unreadable_one(tmp_path: Path, format: str) -> None:
    """Whoever reads it says so: its batch is given up or its pipeline stops, as `on-change` has it."""
    assert found(tmp_path / "gone", format=format).known


@pytest.mark.parametrize("format", ["text", "json"])
def test_lines_are_not_looked_into(tmp_path: Path, format: str) -> None:
    (tmp_path / "a").write_bytes(b"\xff\xfe")
    (tmp_path / "b").write_bytes(b"")
    one, other = (found(tmp_path / n, format=format) for n in "ab")
    assert one.known
    assert one.key == other.key


def test_equal_headers_can_be_read_together_and_others_not(tmp_path: Path) -> None:
    texts = {"one": "a,b\n1,2\n", "same": "a,b\r\n", "turned": "b,a\n", "less": "a\n", "empty": ""}
    keys = {name: csv(tmp_path, text, name).key for name, text in texts.items()}
    assert keys["one"] == keys["same"]
    assert len({keys[n] for n in ("one", "turned", "less", "empty")}) == 4


def test_other_folders_have_other_columns_and_are_not_read_together(tmp_path: Path) -> None:
    keys = {name: csv(tmp_path, "a\n", f"{name}/a.csv").key for name in ("x=1", "x=2", "y=1", "plain")}
    assert keys["x=1"] == keys["x=2"]
    assert len(set(keys.values())) == 3


def test_files_that_can_not_be_read_are_not_read_together(tmp_path: Path) -> None:
    assert csv(tmp_path, "a,a\n", "one").key != csv(tmp_path, "a,a\n", "other").key


@pytest.mark.parametrize(
    "name, packed", [("a.gz", True), ("a.csv.zst", True), ("a.csv", False), ("gz", False), ("a.gz.txt", False)]
)
def test_the_name_says_what_is_compressed(name: str, packed: bool) -> None:
    assert compressed(f"/in/{name}") is packed

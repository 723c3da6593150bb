"""Settings of plugins: parsed from text, and refused with the place in the file they came from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import Field, ValidationError, field_validator, model_validator

from penstock.config import ConfigErrors, Duration, Loaded, Settings, Size, expand_settings, load, parse_settings

FILE = """\
version: 2.2
pipelines:
  - id: p
    connectors:
      - id: in
        type: source
        plugin: x
        settings:
{settings}
      - {{id: out, type: destination, plugin: x}}
"""
AT = ("pipelines", 0, "connectors", 0, "settings")


class Example(Settings):
    path: str
    max_rows: int = 10
    follow: bool = False
    buffer: Size = 0
    every: Duration = 1.0
    batch_size: int = Field(default=1, alias="sdk.batch.size")
    token: str = ""

    @field_validator("token")
    @classmethod
    def _check_token(cls, value: str) -> str:
        if " " in value:
            raise ValueError(f"has a blank: {value}")
        return value

    @model_validator(mode="after")
    def _check_all(self) -> Example:
        if self.path == self.token:
            raise ValueError(f"must not be both: {self.token}")
        return self


def loaded(folder: Path, **settings: str) -> Loaded:
    file = folder / "p.yaml"
    lines = "\n".join(f"          {name}: {value}" for name, value in settings.items())
    file.write_text(FILE.format(settings=lines), encoding="utf-8")
    return load(file, {"SECRET": "", "OTHER": ""})[0]


def parsed(found: Loaded, **environ: str) -> Example:
    settings = found.pipelines[0].connectors[0].settings
    return parse_settings(Example, expand_settings(settings, environ), found, *AT)


def test_settings_are_parsed_from_text(tmp_path: Path) -> None:
    settings = {
        "path": "0123",
        "max-rows": "12",
        "follow": "yes",
        "buffer": "64k",
        "every": "5s",
        "sdk.batch.size": "3",
    }
    found = parsed(loaded(tmp_path, **settings))
    assert found == Example(path="0123", max_rows=12, follow=True, buffer=65536, every=5.0, **{"sdk.batch.size": 3})


def test_settings_have_the_value_of_a_reference(tmp_path: Path) -> None:
    assert parsed(loaded(tmp_path, path="$SECRET/x"), SECRET="/home").path == "/home/x"


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Example(path="x").path = "y"  # type: ignore[misc]


def test_an_unknown_setting_is_refused_with_the_nearest_known_one(tmp_path: Path) -> None:
    found = loaded(tmp_path, path="x", max_rows="5")
    with pytest.raises(ConfigErrors) as caught:
        parsed(found)
    (problem,) = caught.value.problems
    assert (problem.code, problem.what) == ("config.unknown-key", "unknown setting 'max_rows'")
    assert problem.where == f"{found.file}:10:11"
    assert problem.line_text == "          max_rows: 5"
    assert problem.hint == "did you mean 'max-rows'?"


def test_an_unknown_setting_with_no_near_one_lists_them_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as caught:
        parsed(loaded(tmp_path, path="x", zzz="5"))
    assert caught.value.hint == "known settings: path, max-rows, follow, buffer, every, sdk.batch.size, token"


def test_all_bad_settings_are_told_each_at_its_place(tmp_path: Path) -> None:
    found = loaded(tmp_path, **{"max-rows": "many", "follow": "2", "buffer": "5x", "every": "5"})
    with pytest.raises(ConfigErrors) as caught:
        parsed(found)
    assert [(p.code, p.where.removeprefix(f"{found.file}:"), p.what) for p in caught.value.problems] == [
        ("config.missing-key", "9:11", "the setting 'path' is missing"),
        ("config.bad-value", "9:21", "'max-rows' must be a whole number"),
        ("config.bad-value", "10:19", "'follow' must be true or false"),
        ("config.bad-value", "11:19", "'buffer' must be a size such as 1048576, 64m, 512MB or 1g"),
        ("config.bad-value", "12:18", "'every' must be a duration with a unit, such as 500ms, 5s or 1m"),
    ]


def test_a_missing_setting_of_a_connector_without_settings_is_told_at_the_connector(tmp_path: Path) -> None:
    found = loaded(tmp_path, path="x")
    with pytest.raises(ConfigErrors) as caught:
        parse_settings(Example, {}, found, "pipelines", 0, "connectors", 1, "settings")
    assert caught.value.where == f"{found.file}:10:9"


@pytest.mark.parametrize("name", ["token", "path"])
def test_the_value_of_a_reference_is_in_no_error(tmp_path: Path, name: str) -> None:
    values = {"path": "$OTHER", "token": "$SECRET"}
    secret = "hunter 2" if name == "token" else "hunter2"
    with pytest.raises(ConfigErrors) as caught:
        parsed(loaded(tmp_path, **values), SECRET=secret, OTHER="hunter2")
    (problem,) = caught.value.problems
    assert "$SECRET" in problem.what or "$OTHER" in problem.what
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter" not in str(error)
        assert "hunter" not in repr(error)
        error = error.__cause__ or error.__context__


def test_a_value_given_in_python_is_in_no_error_either() -> None:
    with pytest.raises(ValidationError) as caught:
        Example.model_validate({"path": "x", "max-rows": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_without_a_file_the_problems_have_no_place() -> None:
    with pytest.raises(ConfigErrors) as caught:
        parse_settings(Example, {"pth": "x"})
    assert str(caught.value) == (
        "[config.missing-key] the setting 'path' is missing\n"
        "  do: add 'path: …'\n"
        "[config.unknown-key] unknown setting 'pth'\n"
        "  do: did you mean 'path'?"
    )


def test_importing_the_configuration_imports_no_spark() -> None:
    code = "import sys, penstock.config; print('pyspark' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"

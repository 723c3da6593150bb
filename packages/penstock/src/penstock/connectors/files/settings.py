"""Settings of `files`, declared once: parsing, checks and documentation come from here. No Spark."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from penstock.config import Duration, Settings


class FilesSourceSettings(Settings):
    """Reads every settled file of a folder once."""

    path: str = Field(min_length=1, description="The folder to read, or one file.")
    format: Literal["text"] = Field("text", description="One record per line; the bytes of the line are the payload.")
    settle: Duration = Field(
        1.0, ge=0, description="A file is taken when size and modification time have not changed for this long."
    )
    on_change: Literal["stop", "ignore", "reread"] = Field(
        "stop", description="What to do when a file that was taken has changed since."
    )
    after_ack: Literal["keep", "move", "delete"] = Field(
        "keep", description="What happens to a file once everything in it is settled at every destination."
    )
    move_to: str | None = Field(None, description="The folder for `after-ack: move`, on the same file system.")

    @model_validator(mode="after")
    def _move_needs_a_target(self) -> FilesSourceSettings:
        if (self.after_ack == "move") != (self.move_to is not None):
            raise ValueError("must have both `after-ack: move` and `move-to`, or neither")
        return self


class FilesDestinationSettings(Settings):
    """Writes files into a folder; each appears whole, once."""

    path: str = Field(min_length=1, description="The folder to write to. It is created when it is missing.")
    format: Literal["text"] = Field("text", description="One line per record, the payload as it is.")

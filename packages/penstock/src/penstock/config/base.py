"""What the models of a pipeline file have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


def kebab(name: str) -> str:
    return name.replace("_", "-")


class Model(BaseModel):
    """Unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=kebab,
        populate_by_name=True,
        coerce_numbers_to_str=True,  # `id: 12` is the text "12"
        defer_build=True,  # what is not used is not built: imports are quicker
    )


Written = Annotated[int, Field(strict=True, ge=0)]  # the number itself, neither quoted nor by reference, as in Conduit

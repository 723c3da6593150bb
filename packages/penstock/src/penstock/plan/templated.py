"""Settings that may be Go templates (`field.set`, `error`): plain text where there is no `{{` in it. Pure.

The template language itself is loaded only where a setting uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.plan.gotemplate import Template


def template(text: str) -> Template | None:
    """None where it is plain text. Raises `TemplateError`."""
    if "{{" not in text:
        return None
    from penstock.plan.gotemplate import Template

    return Template.parse(text)


def checked(text: str) -> str:
    """For a validator: the text itself, or words that begin with "must"."""
    if "{{" in text:
        from penstock.plan.gotemplate import TemplateError

        try:
            template(text)
        except TemplateError as e:
            hint = f" ({e.hint})" if e.hint else ""
            raise ValueError(f"must be a template that can be used: {e.what}{hint}") from e
    return text

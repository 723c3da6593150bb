"""A hook of mkdocs (see mkdocs.yml). A link that leaves docs/ works in a checkout; in the site nothing is there, so it becomes a name.

Called by mkdocs for every page. mkdocs is no dependency: nothing of it is imported.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[(?P<text>[^\]\[]*)\]\((?P<to>\.\./[^)\s#]*)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return inside(markdown, page.file.src_uri)


def inside(markdown: str, page: str) -> str:
    """`page` is its path below docs/. `[acks](../tests/test_acks.py)` becomes `acks (tests/test_acks.py)`."""

    def name(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link["to"]))
        if path.startswith("docs/"):
            return link[0]
        return link["text"] if path in link["text"] else f"{link['text']} (`{path}`)"

    return _LINK.sub(name, markdown)

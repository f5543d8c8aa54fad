"""A document in each format that is for people; what programs read (json) is made where its shape is declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from netconsole.report.blocks import Document
from netconsole.report.formats.to_html import to_html
from netconsole.report.formats.to_markdown import to_markdown
from netconsole.report.formats.to_text import to_text

RENDERERS: Mapping[str, Callable[[Document], str]] = {"text": to_text, "md": to_markdown, "html": to_html}
"""Together with json the formats of netconsole.base.output."""


def rendered(document: Document, form: str) -> bytes:
    """The document as one of RENDERERS makes it."""
    return RENDERERS[form](document).encode()

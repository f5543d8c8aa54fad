"""Reports for people: a snapshot or a comparison as a document of blocks, and that as text, Markdown or HTML.

:func:`of_snapshot` and :func:`of_comparison` are pure functions of their arguments. The renderers escape every text.
"""

from netconsole.report.blocks import Document
from netconsole.report.formats import rendered
from netconsole.report.formats.to_html import to_html
from netconsole.report.formats.to_markdown import to_markdown
from netconsole.report.formats.to_text import to_text
from netconsole.report.of_baselines import of_baseline, of_baselines
from netconsole.report.of_comparison import of_comparison
from netconsole.report.of_ping import of_ping
from netconsole.report.of_snapshot import of_snapshot

__all__ = [
    "Document",
    "of_baseline",
    "of_baselines",
    "of_comparison",
    "of_ping",
    "of_snapshot",
    "rendered",
    "to_html",
    "to_markdown",
    "to_text",
]

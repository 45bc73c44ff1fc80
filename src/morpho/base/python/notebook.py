"""Text as notebooks show it: Jupyter calls `_repr_html_`, and would show a plain string with its line ends escaped."""

from __future__ import annotations

import html


def preformatted(text: str) -> str:
    """HTML of a text in a fixed-width font, line by line."""
    return f"<pre>{html.escape(text)}</pre>"


def folded(title: str, text: str, is_open: bool = False) -> str:
    """HTML of a title that opens a text."""
    return f"<details{' open' * is_open}><summary>{html.escape(title)}</summary>{preformatted(text)}</details>"


class Page(str):
    """A text of several lines that a notebook shows as lines.

    >>> Page("a < b")._repr_html_()
    '<pre>a &lt; b</pre>'
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return preformatted(self)

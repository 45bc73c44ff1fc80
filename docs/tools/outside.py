"""Links from a page to files of the repository that are not pages: on the site they become the file's path.

>>> rewritten("see [CONTRIBUTING](../CONTRIBUTING.md)", Path("/repo/docs/a.md"), Path("/repo/docs"))
'see CONTRIBUTING (`CONTRIBUTING.md` in the repository)'
>>> rewritten("see [b](b.md#part)", Path("/repo/docs/a.md"), Path("/repo/docs"))
'see [b](b.md#part)'
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def rewritten(text: str, page: Path, pages: Path) -> str:
    """The text of a page with such links replaced."""
    def replace(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(page.parent / link[2]))
        if target.is_relative_to(pages):
            return link[0]
        path = target.relative_to(pages.parent).as_posix()
        return link[1] if link[1].strip("`") == path else f"{link[1]} (`{path}` in the repository)"
    return LINK.sub(replace, text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    def read(_: Sphinx, name: str, content: list[str]) -> None:
        content[0] = rewritten(content[0], Path(app.srcdir) / f"{name}.md", Path(app.srcdir))

    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

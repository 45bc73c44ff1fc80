"""The site in one command, without a network: `python -m docs.build [FOLDER]` (build/site unless told otherwise).

A warning is an error. Afterwards every page is looked through for what it would fetch from elsewhere, and for links
inside the site that lead nowhere. Needs the extra `docs`.
"""

from __future__ import annotations

import re
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

HERE = Path(__file__).resolve().parent
FETCHED = re.compile(r"<(?:script|img|link|iframe|source|video|audio|object|embed)\b[^>]*?\b(?:src|href|data)="
                     r"[\"']((?:https?:)?//[^\"']+)", re.IGNORECASE)
STYLED = re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')]+)", re.IGNORECASE)
LINKED = re.compile(r"<a\b[^>]*?\bhref=\"([^\"]*)\"", re.IGNORECASE)
ANCHORS = re.compile(r"\bid=\"([^\"]+)\"")


def fetched_from_elsewhere(site: Path) -> list[str]:
    """`page: address` of scripts, styles, fonts and pictures that are not part of the site."""
    found = [f"{page.relative_to(site)}: {address}" for page in sorted(site.glob("**/*.html"))
             for address in FETCHED.findall(page.read_text(encoding="utf-8"))]
    return found + [f"{style.relative_to(site)}: {address}" for style in sorted(site.glob("**/*.css"))
                    for address in STYLED.findall(style.read_text(encoding="utf-8"))]


def broken_links(site: Path) -> list[str]:
    """`page: target` of links to files or anchors that the site does not have."""
    texts = {page.resolve(): page.read_text(encoding="utf-8") for page in site.glob("**/*.html")}
    anchors = {page: set(map(unescape, ANCHORS.findall(text))) for page, text in texts.items()}
    found = []
    for page, text in texts.items():
        for link in map(unescape, LINKED.findall(text)):
            if re.match(r"[a-z]+:|//", link) or not link:
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / unquote(path)).resolve() if path else page
            if not target.exists() or (anchor and target in anchors and unquote(anchor) not in anchors[target]):
                found.append(f"{page.relative_to(site.resolve())}: {link}")
    return found


def build(site: Path) -> int:
    """Make the site; what is wrong goes to stderr, and the status is that of a command."""
    from sphinx.cmd.build import build_main

    from docs.tools import pictures

    pictures.draw_all()
    status = build_main(["-W", "--keep-going", "-q", "-j", "auto", "-d", str(site.parent / "doctrees"), "-b", "html",
                         str(HERE), str(site)])
    wrong = fetched_from_elsewhere(site) + broken_links(site) if not status else []
    for line in wrong:
        print("WRONG", line, file=sys.stderr)
    if not status and not wrong:
        print(f"{len(list(site.glob('**/*.html')))} pages, no warning, nothing from elsewhere: {site / 'index.html'}")
    return status or bool(wrong)


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "build" / "site"))

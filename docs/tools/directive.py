"""The directive `public` of the pages in docs/reference/, for Sphinx; `reference.py` has what it writes."""

from __future__ import annotations

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from docs.tools.reference import entry, picked


class Public(SphinxDirective):
    """The names of a namespace, or those that `homes` or `rest` pick."""

    required_arguments = 1
    option_spec = {"homes": str, "rest": lambda _: True}

    def run(self) -> list[nodes.Node]:
        chosen = picked(self.arguments[0], self.options.get("homes", ""), "rest" in self.options)
        if not chosen:
            raise self.error(f"no public name of {self.arguments[0]} is picked by {self.options}")
        text = "\n".join(entry(name, value) for name, value in chosen.items())
        holder = nodes.container()
        holder.document = self.state.document
        self.state.nested_parse(StringList(text.splitlines(), source="docstrings"), self.content_offset, holder)
        return holder.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("public", Public)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Formulas as MathML, by docutils: they need no script, no font download and no network."""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.util.math import get_node_equation_number


def _inline(self, node: nodes.math) -> None:
    self.body.append(str(latex2mathml.tex2mathml(node.astext())))
    raise nodes.SkipNode


def _block(self, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math"))
    if node["number"]:
        number = get_node_equation_number(self, node)
        self.body.append(f'<span class="eqno">({number})</span>')
    self.body.append(str(latex2mathml.tex2mathml(node.astext(), as_block=True)))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app) -> dict:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Formulas as MathML, which browsers show by themselves: pages need no script and no network."""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

OPERATOR = r"<mo[^>]*>&#x0*(?:3D|28|5B|2C);</mo>"  # = ( [ ,
BAR = '<mo stretchy="false">&#x0007C;</mo>'


def to_mathml(formula: str, display: str = "inline") -> str:
    """The formula, spaced as in TeX: a sign before a term, and bars around one, stand close."""
    mathml = convert(formula, display=display)
    mathml = re.sub(
        rf"({OPERATOR})<mo>&#x02212;</mo>", r'\1<mo form="prefix">&#x02212;</mo>', mathml
    )
    mathml = mathml.replace(r"\_", "_")  # within \text
    opening = BAR.replace("<mo", '<mo form="prefix"')
    closing = BAR.replace("<mo", '<mo form="postfix"')
    return re.sub(rf"{BAR}(.*?){BAR}", rf"{opening}\1{closing}", mathml)


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """A formula within a line."""
    self.body.append(to_mathml(node.astext()))
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """A formula in lines of its own, each empty line beginning another one."""
    self.body.append(self.starttag(node, "div", CLASS="math"))
    for formula in node.astext().strip().split("\n\n"):
        self.body.append(to_mathml(formula, display="block"))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Draw the pictures of the pages: the variable ``tree`` as it is above each ``pictures/*.svg``.

A page that draws itself calls its axes, or a list of them, ``picture``; that is saved instead.
The picture of ``index.md``, whose code draws nothing, is drawn by :func:`landing`.

Run ``python docs/pictures.py`` after a page's tree has changed; name pages to draw only theirs.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import torch

from hsa_geo.data import Domain, SignalTree
from hsa_geo.explain import plot_attention, plot_tree
from hsa_geo.ops import attention_matrix, attention_weights

DOCS = Path(__file__).parent
BLOCK = re.compile(r"^```python\n(.*?)^```$|^!\[[^\]]*\]\(pictures/(\w+)\.svg\)", re.M | re.S)


def draw(page: Path) -> None:
    """Run a page's code in an empty folder, up to each of its pictures, and draw these."""
    namespace: dict[str, object] = {"__name__": "__page__"}
    text = page.read_text(encoding="utf-8")
    text = text[: text.index(")", text.rindex("](pictures/")) + 1]  # up to the last of them
    for code, picture in BLOCK.findall(text):
        if code:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(code, page.name, "exec"), namespace)
            continue
        drawn = namespace.pop("picture", None)
        ax = plot_tree(namespace["tree"]) if drawn is None else drawn
        save(ax[0] if isinstance(ax, list) else ax, picture)


def save(ax: plt.Axes, name: str) -> None:
    """Write the figure of these axes to ``pictures/``."""
    path = DOCS / "pictures" / f"{name}.svg"
    path.parent.mkdir(exist_ok=True)
    ax.figure.savefig(path, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    plt.close(ax.figure)
    print(path.relative_to(DOCS.parent))


def landing() -> None:
    """Draw a page of two boxes, its attention, and flat attention of the same queries and keys."""
    names = ["to", "be", "or", "not", "img", "box", "box", "page"]
    domains = [Domain.SEQUENCE] * 7 + [Domain.SET]
    tree = SignalTree.from_parents([5, 5, 5, 6, 6, 7, 7, -1], domain=domains, name=names)
    _, axes = plt.subplots(1, 3, figsize=(9.6, 3.2), width_ratios=(1.3, 1, 1), layout="constrained")
    torch.manual_seed(4)
    q, k = 1.5 * torch.randn(2, 5, 1, 8)
    plot_tree(tree, axes[0]).set_title("a signal tree", fontsize=10)
    flat = attention_matrix(q, k, tree.plan.flat)
    plot_attention(attention_weights(q, k, tree), flat, axes=axes[1:], names=names[:5])
    save(axes[0], "landing")


def main() -> None:
    """Draw the pictures of the pages given, or of all."""
    matplotlib.use("Agg")
    plt.rcParams.update({"svg.hashsalt": "hsa_geo", "svg.fonttype": "none"})
    pages = [Path(name).resolve() for name in sys.argv[1:]] or sorted(DOCS.glob("*.md"))
    for page in pages:
        if page.name == "index.md":
            landing()
        elif "](pictures/" in page.read_text(encoding="utf-8"):
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                draw(page)
            os.chdir(DOCS)


if __name__ == "__main__":
    main()

"""Draw the pictures of the pages: the variable ``tree`` as it is above each ``pictures/*.svg``.

A page that draws itself calls its axes, or a list of them, ``picture``; that is saved instead.

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

from hsa_geo.explain import plot_tree

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
        ax = ax[0] if isinstance(ax, list) else ax
        path = DOCS / "pictures" / f"{picture}.svg"
        path.parent.mkdir(exist_ok=True)
        ax.figure.savefig(path, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
        plt.close(ax.figure)
        print(path.relative_to(DOCS.parent))


def main() -> None:
    """Draw the pictures of the pages given, or of all."""
    matplotlib.use("Agg")
    plt.rcParams.update({"svg.hashsalt": "hsa_geo", "svg.fonttype": "none"})
    pages = [Path(name).resolve() for name in sys.argv[1:]] or sorted(DOCS.glob("*.md"))
    for page in pages:
        if "](pictures/" in page.read_text(encoding="utf-8"):
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                draw(page)
            os.chdir(DOCS)


if __name__ == "__main__":
    main()

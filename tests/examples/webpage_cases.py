"""Hand-written pages, and what the tests of the web page classifier share."""

from __future__ import annotations

import numpy as np
import torch
from webpage_data import READER, Pages, targets

from hsa_geo.datasets import FormPages

FORMS = [
    "<form action=/find>Search our site <input name=q placeholder=search></form>",
    "<form>Log in <input name=user><input type=password name=pass></form>",
    "<form>Create an account <input name=email><input type=password name=confirm></form>",
    "<form>Forgot your password? <input name=email><button>Reset</button></form>",
    "<form>Write to us <textarea name=message></textarea><button>Send</button></form>",
    "<form>Weekly newsletter <input name=email><button>Subscribe</button></form>",
    "<form>In stock now <input name=quantity><button>Buy</button></form>",
    "<form>Our poll <input type=radio name=poll><button>Vote</button></form>",
]
NOT_ANNOTATED, SKIPPED_FORM = -1, -2


class SmallDataset:
    """What the classifier asks of :class:`FormPages`, for pages that are in memory."""

    classes = FormPages.classes

    def __init__(self, pages: list[list[str]]) -> None:
        self.pages = pages

    def page_text(self, i: int, attributes: bool = False) -> str:
        return " ".join(["Shop", *self.pages[i]])

    def form_texts(self, i: int, attributes: bool = False) -> list[str]:
        return self.pages[i]


def make_pages(count: int, seed: int = 0) -> Pages:
    """Pages with random forms, three pages a domain; a few forms are skipped or not annotated."""
    rng = np.random.default_rng(seed)
    trees, y, complete, texts = [], [], [], []
    for i in range(count):
        kinds = rng.choice(8, size=int(rng.integers(0, 4)), replace=False)
        body = "<p>Some words in between.</p>".join(FORMS[k] for k in kinds)
        page = f"<title>Shop number {i}</title><p>Welcome to all of you</p>{body}"
        tree = READER(page)
        fate = rng.random(len(kinds))
        label = np.where(fate < 0.1, NOT_ANNOTATED, np.where(fate < 0.2, SKIPPED_FORM, kinds))
        tree.form_label = torch.from_numpy(label).long()
        held = np.zeros(8, dtype=np.float32)
        held[label[label >= 0]] = 1
        trees.append(tree)
        y.append(held)
        complete.append(bool((label != NOT_ANNOTATED).all()))
        texts.append([FORMS[k] for k in kinds])
    return Pages(SmallDataset(texts), trees, np.stack(y), np.array(complete), np.arange(count) // 3)


def mean_loss(model: torch.nn.Module, pages: Pages, chosen: np.ndarray) -> float:
    """Cross entropy of the forms of pages, each class with the same weight, as in training."""
    model.eval()
    with torch.no_grad():
        parts = [
            (model(batch, batch.form_node), targets(batch.form_label))
            for _, batch in pages.batches(chosen, 32)
        ]
    logits, target = (torch.cat(part) for part in zip(*parts))
    count = torch.bincount(target[target >= 0], minlength=9)
    weight = 1 / count.clamp(min=1).float()
    return float(torch.nn.functional.cross_entropy(logits, target, weight, ignore_index=-1))

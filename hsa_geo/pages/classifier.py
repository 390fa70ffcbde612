"""A classifier of pages: reader, model, labels; one folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.errors import FileFormatError, LabelError, NonFiniteError, ShapeError
from hsa_geo.nn import SubtreeClassifier
from hsa_geo.nn.saving import MAX_BYTES
from hsa_geo.pages.forms import NONE, page_labels, page_of_form
from hsa_geo.pages.labels import check_labels
from hsa_geo.pages.reading import PageReader

__all__ = ["FormPrediction", "PageClassifier", "Prediction"]


class FormPrediction(NamedTuple):
    """What a classifier says of one form.

    Attributes:
        label: Its type, or ``"(none of these)"``.
        probability: Of this.
        order: Its number among all forms of the page, from 0.

    Example:
        >>> FormPrediction("login", 0.9, 0).label
        'login'
    """

    label: str
    probability: float
    order: int


@dataclass(frozen=True)
class Prediction:
    """What a classifier says of one page.

    Attributes:
        labels: Of the page: one, or as many as its forms have types.
        probabilities: Of every label, the largest first.
        forms: Of each form that shows something, if the classifier answers for forms.

    Example:
        >>> Prediction(["news"], {"news": 0.9, "shop": 0.1}).labels
        ['news']
    """

    labels: list[str]
    probabilities: dict[str, float]
    forms: list[FormPrediction] = field(default_factory=list)


class PageClassifier:
    """Says which labels a web page has.

    Args:
        model: A model of ``reader.hash_buckets`` ids and ``reader.patch``, with an output for each
            label, and one more for forms of none of the types if the unit is ``"form"``.
        reader: How pages are read.
        labels: Names of the labels, all different.
        about: What else is worth keeping, such as how it was trained, as JSON.
            (default: :obj:`None`)

    Raises:
        LabelError: If a label is no name, or given twice.
        ShapeError: If model, reader and labels do not fit together.

    Example:
        >>> model = SubtreeClassifier(num_ids=2**14, num_classes=2, channels=8)
        >>> classifier = PageClassifier(model, PageReader(), ["news", "shop"])
        >>> sorted(classifier.predict("<p>Buy now, only today").probabilities)
        ['news', 'shop']
        >>> classifier.save("a classifier")
        >>> PageClassifier.load("a classifier").labels
        ['news', 'shop']
    """

    def __init__(
        self,
        model: SubtreeClassifier,
        reader: PageReader,
        labels: Sequence[str],
        about: dict[str, Any] | None = None,
    ) -> None:
        self.model, self.reader, self.labels = model.eval(), reader, check_labels(labels)
        self.about = dict(about or {})
        outputs = len(self.labels) + (reader.unit == "form")
        if model.config["num_classes"] != outputs or model.config["num_ids"] != reader.hash_buckets:
            raise ShapeError(
                f"the model has {model.config['num_ids']} ids and {model.config['num_classes']} "
                f"outputs, but {reader.hash_buckets} and {outputs} are needed for "
                f"{len(self.labels)} labels of a {reader.unit}: give a model of these sizes."
            )
        if model.config["patch"] != reader.patch:
            raise ShapeError(
                f"the model has patch={model.config['patch']} and the reader patch={reader.patch}: "
                "give a model that reads pictures as the reader does, or not at all."
            )

    def predict(
        self,
        source: bytes | str | os.PathLike[str],
        charset: str | None = None,
        base: str | os.PathLike[str] | None = None,
    ) -> Prediction:
        """The labels of a page.

        Args:
            source: The page: bytes, markup (a str is never taken for a path), or a path.
            charset: Its charset, if the transport told it. (default: :obj:`None`)
            base: The folder in which files of pictures may be read, such as the page's own, of a
                classifier that reads pictures. (default: those within the page alone)

        Returns:
            Labels and probabilities.

        Raises:
            BuilderError: If it shows nothing, or cannot be read as a page.
            OSError: If the file cannot be read.
        """
        return self.predict_tree(self.reader(source, charset, base))

    @torch.inference_mode()
    def predict_tree(self, tree: SignalTree) -> Prediction:
        """The labels of a page whose tree :attr:`reader` made.

        Args:
            tree: The tree.

        Returns:
            Labels and probabilities.

        Raises:
            NonFiniteError: If the model's weights give no numbers.
        """
        self.model.eval()
        if self.reader.unit == "page":
            p = _finite(self.model(tree)[0]).softmax(-1)
            return Prediction([self.labels[int(p.argmax())]], self._named(p.tolist()))
        names = [*self.labels, NONE]
        batch = Batch.from_data_list([tree])
        logits = _finite(self.model(batch, batch.form_node))  # [K, C + 1]
        hit, probability = page_labels(logits, page_of_form(batch), 1)
        best, which = logits.softmax(-1).max(-1)
        forms = zip(which.tolist(), best.tolist(), tree.form_order.tolist())
        return Prediction(
            [name for name, found in zip(names, hit[0].tolist()) if found],
            self._named(probability[0].tolist()),
            [FormPrediction(names[label], p, order) for label, p, order in forms],
        )

    def _named(self, probabilities: list[float]) -> dict[str, float]:
        pairs = zip(self.labels, probabilities)
        return dict(sorted(pairs, key=lambda pair: -pair[1]))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``model.safetensors`` and ``config.json`` into a folder, never a pickle.

        Args:
            folder: Where to write; made if it does not exist.
        """
        pages = {"reader": self.reader.config, "labels": self.labels, "about": self.about}
        self.model.save(folder, {"pages": pages})

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], max_bytes: int | None = MAX_BYTES
    ) -> PageClassifier:
        """Read what :meth:`save` wrote; the folder may come from anywhere.

        Args:
            folder: The folder.
            max_bytes: Largest file of tensors that is read; None for any. (default: 4 GiB)

        Returns:
            The classifier.

        Raises:
            FileFormatError: If the folder does not hold one, or its weights are no finite numbers.
        """
        model, extra = SubtreeClassifier.load(folder, max_bytes)
        pages = extra.get("pages")
        if not isinstance(pages, dict) or pages.keys() != {"reader", "labels", "about"}:
            raise FileFormatError(
                f"'{folder}' holds a model, but does not say how it reads pages: give the folder "
                "of a page classifier, as `hsa-geo train` writes it."
            )
        try:
            reader = PageReader.from_config(pages["reader"])
            if not isinstance(pages["labels"], list) or not isinstance(pages["about"], dict):
                raise LabelError("its labels are no list, or what it says about itself no object.")
            _check_finite(model)
            return cls(model, reader, pages["labels"], pages["about"])
        except (FileFormatError, LabelError, ShapeError) as error:
            raise FileFormatError(f"'{folder}' holds no page classifier: {error}") from error

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.reader.unit}, {len(self.labels)} labels)"


def _check_finite(model: SubtreeClassifier) -> None:
    """Weights that are no numbers may spoil some pages only: refuse them all."""
    for name, value in model.state_dict().items():
        if not bool(value.isfinite().all()):
            raise FileFormatError(f"'{name}' holds numbers that are not finite: train it anew.")


def _finite(out: Tensor) -> Tensor:
    if not bool(out.isfinite().all()):
        raise NonFiniteError("the model answers with no finite numbers: train it anew.")
    return out

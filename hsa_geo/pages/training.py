"""Training of page classifiers, by :func:`hsa_geo.training.fit`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError
from hsa_geo.nn import SubtreeClassifier
from hsa_geo.pages.classifier import PageClassifier
from hsa_geo.pages.forms import form_targets, page_labels, page_of_form
from hsa_geo.pages.labels import check_labels
from hsa_geo.pages.reading import PageReader
from hsa_geo.pages.targets import check_targets
from hsa_geo.training import FitResult, Options, fit

__all__ = ["PageSettings", "f1", "train_pages"]

#: Most leaves of a batch; a page that has more is a batch of its own.
BUDGET = 2**15
#: How much it counts in a score how sure a model is: it decides between equal ones.
TIE = 1e-6


@dataclass(frozen=True)
class PageSettings:
    """Model and training; the defaults were chosen for forms on validation pages.

    Args:
        attention: ``"hsa"``, or ``"flat"`` or ``"deep_set"``; see
            :class:`~hsa_geo.nn.SubtreeClassifier`.
        channels: Width.
        num_layers: Number of blocks.
        heads: Number of heads.
        dropout: Of leaves and residual branches.
        token_dropout: Of whole tokens.
        epochs: Most epochs.
        patience: Stop after so many epochs without a better score on the validation pages.
        batch_size: Most pages of a step.
        lr: Learning rate.
        table_factor: Times this for the tables of tokens.
        weight_decay: Of AdamW.
        ema: Decay of the moving average of the weights, which is what is used.
        seed: Of everything random.

    Example:
        >>> PageSettings(epochs=3).channels
        64
    """

    attention: str = "hsa"
    channels: int = 64
    num_layers: int = 1
    heads: int = 4
    dropout: float = 0.3
    token_dropout: float = 0.5
    epochs: int = 10
    patience: int = 4
    batch_size: int = 32
    lr: float = 2e-3
    table_factor: float = 5.0
    weight_decay: float = 0.05
    ema: float = 0.97
    seed: int = 0


class _Trained(SubtreeClassifier):
    """A model whose tables of tokens learn faster."""

    table_factor = 1.0

    def parameter_groups(self) -> list[dict[str, Any]]:
        """As :func:`~hsa_geo.training.fit` wants them."""
        return [{"params": self.embedding_parameters(), "lr_factor": self.table_factor}]


def train_pages(
    train: Sequence[SignalTree],
    validation: Sequence[SignalTree] | None,
    reader: PageReader,
    labels: Sequence[str],
    settings: PageSettings | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = False,
    log: bool = True,
) -> tuple[PageClassifier, FitResult]:
    """Train a classifier on trees that ``reader`` made.

    Every class weighs the same in the loss.  On the validation pages, if there are some, the mean
    of macro- and micro-F1 is taken after every epoch, and the best epoch is kept.

    Args:
        train: Trees with ``y [1]`` int64, the place of the page's label; if the reader is for
            forms, with ``form_label [K]`` (a place, -1 not annotated, -2 of no type) and ``y [1,
            C]``, what the page holds.
        validation: Trees of the same kind, or :obj:`None`.
        reader: What made the trees.
        labels: Their names.
        settings: Model and training. (default: ``PageSettings()``)
        folder: Where checkpoints and ``metrics.csv`` go. (default: nothing is written)
        resume: Go on from the newest checkpoint. (default: :obj:`False`)
        log: Show progress on stderr. (default: :obj:`True`)

    Returns:
        The classifier, and the record of :func:`~hsa_geo.training.fit`.

    Raises:
        LabelError: If the labels are no names, or more than 10,000.
        ShapeError: If ``train`` is empty, a setting is out of range, or a tree has no label, or
            none of these.
        TrainingError: As :func:`~hsa_geo.training.fit`.

    Example:
        >>> reader, trees = PageReader(), []
        >>> for page, label in [("<p>Buy our shoes", 0), ("<p>Elections today", 1)] * 8:
        ...     trees.append(reader(page))
        ...     trees[-1].y = torch.tensor([label])
        >>> settings = PageSettings(channels=8, heads=2, epochs=20)
        >>> classifier, record = train_pages(
        ...     trees, None, reader, ["shop", "news"], settings, log=False)
        >>> classifier.predict("<p>Shoes and more shoes").labels
        ['shop']
    """
    settings = PageSettings() if settings is None else settings
    labels = check_labels(labels)
    check_targets(train, reader.unit, len(labels), "train")
    given = () if validation is None else validation
    check_targets(given, reader.unit, len(labels), "validation", scored=True)
    outputs = len(labels) + (reader.unit == "form")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = _Trained(
            num_ids=reader.hash_buckets,
            num_classes=outputs,
            channels=settings.channels,
            num_layers=settings.num_layers,
            heads=settings.heads,
            dropout=settings.dropout,
            token_dropout=settings.token_dropout,
            attention=settings.attention,
            patch=reader.patch,
        )
    model.table_factor = settings.table_factor
    options = Options(
        epochs=settings.epochs,
        budget=BUDGET,
        max_trees=settings.batch_size,
        lr=settings.lr,
        warmup=0.1,
        weight_decay=settings.weight_decay,
        patience=None if validation is None else settings.patience,
        ema=settings.ema,
        seed=settings.seed,
    )
    answers = _Forms(len(labels)) if reader.unit == "form" else _Pages(len(labels))
    result = fit(
        model,
        train,
        validation,
        loss=answers.loss_weighted_by(train),
        metric=None if validation is None else answers.score,
        options=options,
        folder=folder,
        resume=resume,
        log=log,
    )
    with torch.random.fork_rng(devices=[]):
        plain = SubtreeClassifier(**model.config)
    plain.load_state_dict(model.cpu().state_dict())
    if result.metric is not None:  # without what decides between equal ones
        result = replace(result, metric=round(result.metric, 4))
    about = {"settings": asdict(settings), "validation_score": result.metric}
    return PageClassifier(plain, reader, labels, about), result


class _Pages:
    """Loss and score where every page has one label."""

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def targets(self, batch: Any) -> Tensor:
        """Places of the outputs, -1 for what is not trained on."""
        y: Tensor = batch.y
        return y

    def logits(self, model: nn.Module, batch: Any) -> Tensor:
        """Outputs ``[K, C]``."""
        out: Tensor = model(batch)
        return out

    def loss_weighted_by(self, trees: Sequence[SignalTree]) -> Any:
        """The loss, in which every class of the training trees weighs the same."""
        if not len(trees):
            raise ShapeError("train holds no page: give at least one.")
        target = torch.cat([self.targets(tree) for tree in trees])
        target = target[target >= 0]
        if target.dtype != torch.int64 or not target.numel():
            raise ShapeError(f"the pages have labels {target.tolist()[:5]}: give int64 places.")
        count = torch.bincount(target).clamp(min=1).float()
        weight = count.mean() / count

        def loss(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
            target = self.targets(batch)
            known = target >= 0
            logits, target = self.logits(model, batch)[known], target[known]
            losses = nn.functional.cross_entropy(logits, target, reduction="none")
            return losses, weight.to(logits.device)[target]

        return loss

    def found(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        """What is true of the pages and what is said ``[B, C]``, as 0 and 1, and how surely."""
        one_hot = nn.functional.one_hot
        p = self.logits(model, batch).softmax(-1)
        return one_hot(batch.y, self.classes), one_hot(p.argmax(-1), self.classes), p

    def score(self, model: nn.Module, batches: Any) -> float:
        """Mean of macro- and micro-F1 of the pages; of equal ones the surer is a little better.

        On a few pages the first epochs may be as right as later ones, by chance and barely.
        """
        found = [self.found(model, batch) for batch in batches]
        true, said, p = (torch.cat(part).cpu() for part in zip(*found))
        sure = 1 - float((true - p).abs().mean())
        return (1 - TIE) * sum(f1(true, said)) / 2 + TIE * sure


class _Forms(_Pages):
    """Loss and score where a page has the labels of its forms."""

    def targets(self, batch: Any) -> Tensor:
        return form_targets(batch.form_label, self.classes)

    def logits(self, model: nn.Module, batch: Any) -> Tensor:
        out: Tensor = model(batch, batch.form_node)
        return out

    def found(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.logits(model, batch).cpu()
        return (batch.y, *page_labels(logits, page_of_form(batch).cpu(), batch.num_graphs))


def f1(true: Tensor, said: Tensor) -> tuple[float, float]:
    """Macro- and micro-F1; a class that is neither there nor said counts 0.

    Args:
        true: ``[n, C]``, 0 or 1.
        said: ``[n, C]``, 0 or 1.

    Returns:
        Both.

    Example:
        >>> f1(torch.tensor([[1, 0], [0, 1]]), torch.tensor([[1, 0], [1, 0]]))
        (0.3333333333333333, 0.5)
    """
    true, said = true.double(), said.double()
    hit, both = (true * said).sum(0), true.sum(0) + said.sum(0)  # [C] each
    macro = (2 * hit / both.clamp(min=1)).mean()
    return float(macro), float(2 * hit.sum() / both.sum().clamp(min=1))

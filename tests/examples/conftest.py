"""The examples are imported by path; a small web of hand-written pages stands in for the real."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


@pytest.fixture(scope="session")
def small_web():
    """Sixty pages of twenty web domains, each with up to three forms that are easy to tell."""
    pytest.importorskip("rich")
    pytest.importorskip("sklearn")
    from webpage_cases import make_pages

    return make_pages(60)

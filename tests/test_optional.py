from __future__ import annotations

import sys

import pytest

from hsa_geo._optional import require
from hsa_geo.errors import HSAError, MissingPackageError


def test_what_is_there():
    import json
    import xml.etree.ElementTree as tree

    assert require("json", extra="html", purpose="x") is json
    assert require("xml.etree.ElementTree", extra="html", purpose="x") is tree


def test_what_is_missing_says_how_to_install():
    with pytest.raises(MissingPackageError) as caught:
        require("no_such_package.part", extra="html", purpose="reading HTML")
    message = str(caught.value)
    assert message.startswith("reading HTML needs the package 'no_such_package'")
    assert "pip install 'hsa_geo[html]'" in message
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, HSAError)
    assert isinstance(caught.value.__cause__, ImportError)


def test_a_blocked_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "selectolax", None)
    with pytest.raises(MissingPackageError, match="selectolax"):
        require("selectolax", extra="html", purpose="reading HTML")


def test_a_broken_package_is_reported_too(monkeypatch, tmp_path):
    (tmp_path / "half_installed.py").write_text("from json import nothing_like_it\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingPackageError, match="nothing_like_it"):
        require("half_installed", extra="html", purpose="reading HTML")

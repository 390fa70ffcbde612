"""The document: what its policy allows, and what its data can hold."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re

import numpy as np
import pytest

from hsa_geo.explain.report.document import document, json_text, packed, table_html

PARTS = dict.fromkeys(
    ("summary", "remarks", "answers", "cost", "views", "page", "attention", "parts", "notes"), ""
)


def test_the_policy_allows_the_one_script_and_the_one_style():
    text = document("t", {}, **PARTS)
    policy = html.unescape(re.search('Security-Policy" content="([^"]*)"', text)[1])
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:"
    for kind, pattern in (
        ("script", r"<script>(.*?)</script>"),
        ("style", r"<style>(.*?)</style>"),
    ):
        (content,) = re.findall(pattern, text, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"
    assert set(rules) == {
        *("default-src", "img-src", "base-uri", "form-action", "style-src", "script-src")
    }


def test_nothing_comes_from_elsewhere():
    text = document("t", {}, **PARTS)
    assert not re.findall(r"(?:src|href)=|url\(|@import|https?://", text)


@pytest.mark.parametrize("evil", ["</script><script>", "<!--<script", "]]>", "\u2028", "$title"])
def test_data_and_titles_hold_anything(evil):
    text = document(evil, {"names": [evil]}, **PARTS)
    assert text.count("<script") == 2
    assert text.count("</script") == 2
    assert "<!--" not in text
    (data,) = re.findall(r'id="data">(.*?)</script>', text, re.S)
    assert json.loads(data) == {"names": [evil]}
    assert text.count(f"<title>{html.escape(evil)}</title>") == 1
    assert not set("<>&\u2028") & set(json_text(evil))


def test_tables():
    out = table_html(["<a>"], [["<b>"], [0.12345], [("<c>", 3)]])
    assert "&lt;a&gt;" in out
    assert "<td>&lt;b&gt;</td>" in out
    assert "<td>0.123</td>" in out
    assert '<button class="link" data-go="3">&lt;c&gt;</button>' in out


def test_numbers_are_little_endian():
    assert base64.b64decode(packed(np.array([258]), "uint16")) == b"\x02\x01"
    assert base64.b64decode(packed(np.array([-1]), "int8")) == b"\xff"

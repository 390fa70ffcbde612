import random
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsa_geo.builders import from_html
from hsa_geo.builders._charset import _LABELS, _MAGIC, codec_of_label, decode_page, sniff_codec
from hsa_geo.errors import BuilderError, DecodingWarning

CHINESE = "登录系统"
META = '<meta http-equiv="Content-Type" content="text/html; charset={}">'


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("UTF-8", "utf-8"),
        (" utf8 ", "utf-8"),
        ("latin-1", "cp1252"),
        ("ISO-8859-1", "cp1252"),
        ("us-ascii", "cp1252"),
        ("gb2312", "gb18030"),
        ("GBK", "gb18030"),
        ("iso-8859-9", "cp1254"),
        ("tis-620", "cp874"),
        ("Shift_JIS", "cp932"),
        ("ks_c_5601-1987", "cp949"),
        ("'utf-8'", "utf-8"),
        ("utf-7", None),
        ("rot13", None),
        ("", None),
    ],
)
def test_labels_mean_what_they_mean_on_the_web(label: str, codec: str | None) -> None:
    assert codec_of_label(label) == codec


def test_every_codec_exists() -> None:
    for codec in _LABELS:
        assert "a".encode(codec).decode(codec) == "a"


@pytest.mark.parametrize(
    "meta",
    [
        META.format("gb2312"),
        META.format("GBK"),
        "<meta charset=gbk>",
        '<META CHARSET="gbk">',
        "<meta charset='gbk'/>",
        "<meta content='text/html;charset=gbk' http-equiv=content-type>",
        # malformed: a quote too many, a typographic quote, an end that is missing
        '<meta http-equiv="Content-Type" content="text/html" ; charset=gb2312" />',
        '<meta http-equiv=Content-Type content="text/html; charset=gbk>',
        "<meta http-equiv='Content-Type' content='text/html; charset = gbk'>",
        '<meta http-equiv="Content-Type" content="text/html; charset=\\"gbk\\"">',
        '<meta name="x" content="y"><meta charset="gbk"',
        '<!-- <meta charset="utf-8"> --><meta charset="gbk">',
        "<meta charset=nonsense><meta charset=gbk>",
        '<?xml version="1.0" encoding="gbk"?>',
        " " * 3000 + "<meta charset=gbk>",
    ],
)
def test_meta(meta: str) -> None:
    page = f"{meta}<title>{CHINESE}</title>".encode("gbk")
    assert CHINESE in decode_page(page)


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        (b"caf\xe9", None, "café"),
        ("café".encode(), None, "café"),
        (b"\x80uro\x81", None, "€uro\x81"),
        (b"\xef\xbb\xbf<meta charset=gbk>\xc3\xa9", None, "<meta charset=gbk>é"),
        ("\ufeffé".encode("utf-16-le"), None, "é"),
        ("\ufeffé".encode("utf-16-be"), "utf-8", "é"),
        ("<p>é".encode("utf-16-le"), None, "<p>é"),
        ("<p>é".encode("utf-16-be"), None, "<p>é"),
        ("<meta charset=utf-16>é".encode(), None, "<meta charset=utf-16>é"),
        ("<meta charset=utf-8>é".encode("cp1252"), "latin-1", "<meta charset=utf-8>é"),
        ("é".encode("utf-16-le"), "utf-16", "é"),
        ("Привет".encode("cp1251"), "windows-1251", "Привет"),
        ("日本".encode("cp932"), "sjis", "日本"),
        ("한국".encode("cp949"), "euc-kr", "한국"),
        (b"", None, ""),
    ],
)
def test_evidence_in_order(data: bytes, charset: str | None, text: str) -> None:
    assert decode_page(data, charset) == text


@pytest.mark.parametrize(
    ("data", "charset", "text", "message"),
    [
        (
            b"<meta charset=utf-8>caf\xe9!",
            None,
            "<meta charset=utf-8>caf\ufffd!",
            "1 of 25 .*utf-8",
        ),
        ("\ufffd".encode() + b"\xff\xfe\xe9", "utf-8", "\ufffd" * 4, "3 of 4 .*utf-8"),
        (b"\x81", "gbk", "\ufffd", "1 of 1 .*gb18030"),
        (b"\xff\xfea\0b", None, "a\ufffd", "1 of 2 .*utf-16-le"),
        (b"a\xff", "windows-1253", "a\ufffd", "1 of 2 .*cp1253"),
    ],
)
def test_what_cannot_be_decoded_is_counted(data, charset, text, message) -> None:
    with pytest.warns(DecodingWarning, match=message) as record:
        assert decode_page(data, charset) == text
    assert len(record) == 1
    with pytest.warns(DecodingWarning, match="charset=") as record:
        from_html(b"<p>ok <p>" + data, charset=charset or "utf-8")
    assert len(record) == 1


def test_a_replacement_character_of_the_page_itself_is_no_loss() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode_page("a\ufffdb".encode()) == "a\ufffdb"
        assert decode_page("\ufeffa\ufffdb".encode("utf-16-le")) == "a\ufffdb"
        assert decode_page(b"\x81", "windows-1252") == "\x81"


@pytest.mark.parametrize("charset", ["utf-7", "klingon", ""])
def test_unknown_header_charset_is_refused(charset: str) -> None:
    with pytest.raises(BuilderError, match="not an encoding that browsers know"):
        sniff_codec(b"x", charset)


def test_charset_of_a_str_is_refused() -> None:
    with pytest.raises(BuilderError, match="decoded already"):
        from_html("<p>x", charset="utf-8")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"PK\x03\x04xx", "zip"),
        (b"%PDF-1.4", "PDF"),
        (b"\x89PNG\r\n\x1a\n", "PNG"),
        (b"\xff\xd8\xff\xe0", "JPEG"),
        (b"GIF89a", "GIF"),
    ],
)
def test_what_is_no_page_is_named(data: bytes, what: str) -> None:
    with pytest.raises(BuilderError, match=what):
        from_html(data)


@pytest.mark.filterwarnings("ignore::hsa_geo.errors.DecodingWarning")
@given(st.binary(max_size=200), st.sampled_from([None, "utf-8", "gbk", "big5", "utf-16", "sjis"]))
def test_any_bytes_decode(data: bytes, charset: str | None) -> None:
    if not data.startswith(tuple(magic for magic, _, _ in _MAGIC)):
        assert isinstance(decode_page(data, charset), str)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02",
        b"\xde\xad\xbe\xef",
        b"\x7fELF",
        b"\x01\x02a\x03",
        b"\x00a\x00b",
        "Привет".encode("koi8-r"),
    ],
)
def test_bytes_that_are_neither_markup_nor_text(data: bytes) -> None:
    with pytest.raises(BuilderError, match=r"bytes b.* are neither markup nor text: skip them"):
        from_html(data)


@pytest.mark.parametrize(
    ("data", "charset", "word"),
    [
        ("Привет".encode("koi8-r"), "koi8-r", "Привет"),
        ("é".encode("utf-16-le"), "utf-16", "é"),
        ("<p>Привет".encode("koi8-r"), None, "ðÒÉ"),
        (b"<p>a\0b", None, "ab"),
        ("日本".encode(), None, "日本"),
        ("\ufeff日本".encode("utf-16-le"), None, "日本"),
        (b"caf\xe9", None, "café"),
    ],
)
def test_what_may_be_a_page_is_read(data: bytes, charset: str | None, word: str) -> None:
    tree = from_html(data, charset=charset)
    assert word in "".join(tree.tree_name[: tree.num_leaves])


@pytest.mark.filterwarnings("ignore::hsa_geo.errors.DecodingWarning")
@pytest.mark.parametrize("size", [1_000, 20_000, 300_000])
@pytest.mark.parametrize("charset", [None, "utf-8", "windows-1252"])
def test_random_bytes_are_no_page(size: int, charset: str | None) -> None:
    data = random.Random(size).randbytes(size)
    assert b"<" in data
    with pytest.raises(BuilderError, match=r"bytes b.* are neither markup nor text: skip them"):
        from_html(data, charset=charset)


@pytest.mark.parametrize(
    "data",
    [
        b"<p>" + b"\x01" * 16 + b"word",  # strays
        b"<p>" + b"word \x02" * 20 + b"word " * 200,
        b"\0<\0p\0>\0w\0o\0r\0d" * 99,  # UTF-16 that names no charset
    ],
)
def test_pages_with_a_few_strays_are_read(data: bytes) -> None:
    assert any("word" in name for name in from_html(data).tree_name)

"""Bytes of a page to text, with the charset found as browsers find it.

Order of evidence (the HTML standard's "encoding sniffing"): a byte order mark, then the charset
of the transport (HTTP header), then a ``<meta>`` or XML declaration, then the bytes themselves:
UTF-8 where they are valid UTF-8, else windows-1252.  Labels mean what they mean on the web and
not what they say: ``latin-1`` is windows-1252, ``gb2312`` is GB 18030, a ``<meta>`` that says
``utf-16`` is UTF-8 (it could not have been read otherwise).

Sources: https://encoding.spec.whatwg.org and https://html.spec.whatwg.org, section
"determining the character encoding".
"""

from __future__ import annotations

import codecs
import re
import warnings

from hsa_geo.builders._arguments import shown
from hsa_geo.errors import BuilderError, DecodingWarning

__all__ = ["codec_of_label", "decode_page", "sniff_codec"]

#: How far a declaration is looked for: first as browsers' prescan does, then more patiently.
PRESCAN_BYTES = 1024
LATE_BYTES = 64 * 1024

# Python codec -> labels that mean it on the web (besides the codec's own name).
_LABELS = {
    "utf-8": "utf8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8",
    "utf-16-le": "utf-16 utf-16le utf16 ucs-2 iso-10646-ucs-2 unicode unicodefeff csunicode",
    "utf-16-be": "utf-16be unicodefffe",
    "cp1252": "windows-1252 x-cp1252 iso-8859-1 iso8859-1 iso_8859-1 iso88591 iso_8859-1:1987 "
    "latin1 latin-1 l1 ascii us-ascii ansi_x3.4-1968 ibm819 cp819 csisolatin1 iso-ir-100 "
    "x-user-defined",
    "iso8859-2": "iso-8859-2 iso_8859-2 iso88592 iso_8859-2:1987 latin2 l2 csisolatin2 iso-ir-101",
    "iso8859-3": "iso-8859-3 iso_8859-3 iso88593 latin3 l3 csisolatin3",
    "iso8859-4": "iso-8859-4 iso_8859-4 iso88594 latin4 l4 csisolatin4",
    "iso8859-5": "iso-8859-5 iso_8859-5 iso88595 cyrillic csisolatincyrillic",
    "iso8859-6": "iso-8859-6 iso_8859-6 iso88596 iso-8859-6-e iso-8859-6-i arabic ecma-114 "
    "asmo-708 csisolatinarabic",
    "iso8859-7": "iso-8859-7 iso_8859-7 iso88597 greek greek8 ecma-118 elot_928 sun_eu_greek "
    "csisolatingreek",
    "iso8859-8": "iso-8859-8 iso_8859-8 iso88598 iso-8859-8-e iso-8859-8-i hebrew visual logical "
    "csisolatinhebrew csiso88598i",
    "iso8859-10": "iso-8859-10 iso885910 latin6 l6 csisolatin6",
    "iso8859-13": "iso-8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso885914",
    "iso8859-15": "iso-8859-15 iso_8859-15 iso885915 l9 latin9 latin-9 csisolatin9",
    "iso8859-16": "iso-8859-16",
    "cp874": "windows-874 iso-8859-11 iso8859-11 iso885911 tis-620 dos-874",
    "cp1250": "windows-1250 x-cp1250",
    "cp1251": "windows-1251 x-cp1251 win-1251 win1251",
    "cp1253": "windows-1253 x-cp1253",
    "cp1254": "windows-1254 x-cp1254 iso-8859-9 iso_8859-9 iso8859-9 iso88599 latin5 l5 "
    "csisolatin5 iso_8859-9:1989",
    "cp1255": "windows-1255 x-cp1255",
    "cp1256": "windows-1256 x-cp1256",
    "cp1257": "windows-1257 x-cp1257",
    "cp1258": "windows-1258 x-cp1258",
    "cp866": "ibm866 866 csibm866",
    "koi8-r": "koi koi8 koi8_r cskoi8r",
    "koi8-u": "koi8-ru",
    "mac-roman": "macintosh mac x-mac-roman csmacintosh",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "gbk gb2312 gb_2312 gb_2312-80 x-gbk chinese cp936 ms936 gb-2312 csgb2312 "
    "csiso58gb231280 iso-ir-58 windows-936",
    "big5hkscs": "big5 big5-hkscs cn-big5 x-x-big5 csbig5",
    "euc_jp": "euc-jp x-euc-jp eucjp cseucpkdfmtjapanese",
    "cp932": "shift_jis shift-jis sjis x-sjis ms932 ms_kanji windows-31j csshiftjis",
    "iso2022_jp": "iso-2022-jp csiso2022jp",
    "cp949": "euc-kr euckr korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 uhc cseuckr "
    "csksc56011987 iso-ir-149 windows-949",
}
_CODECS = {label: codec for codec, labels in _LABELS.items() for label in [codec, *labels.split()]}

_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))

# What the bytes are when they are no page at all, and what to do about it.
_MAGIC = (
    (b"\x1f\x8b", "gzip data", "decompress it first (gzip.decompress)"),
    (b"PK\x03\x04", "a zip archive", "unpack it and give one page"),
    (b"%PDF-", "a PDF document", "convert it to HTML first"),
    (b"\x89PNG\r\n", "a PNG image", "put it into a page as <img>"),
    (b"\xff\xd8\xff", "a JPEG image", "put it into a page as <img>"),
    (b"GIF87a", "a GIF image", "put it into a page as <img>"),
    (b"GIF89a", "a GIF image", "put it into a page as <img>"),
)

_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.S)
_META = re.compile(rb"<meta[\s/]([^>]*)", re.I)
_ATTR = re.compile(rb"""([^\s/>="'][^\s/>=]*)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>]*))?""")
_IN_CONTENT = re.compile(rb"""charset\s*=\s*("[^"]*"|'[^']*'|[^\s;"']+)""", re.I)
_XML_DECL = re.compile(rb"""\A<\?xml[^>]*?encoding\s*=\s*("[^"]*"|'[^']*')""", re.I)
_LOOSE = re.compile(rb"""<meta[^>]{0,400}?charset\s*=[\s"'\\=\x80-\xff]*([a-z0-9_:.\-]+)""", re.I)


def _c1(error: UnicodeError) -> tuple[str, int]:
    """Bytes that a single-byte code page leaves undefined: C1 controls, as on the web."""
    if isinstance(error, UnicodeDecodeError):
        bad = error.object[error.start : error.end]
        return "".join(chr(b) if b < 0xA0 else "\ufffd" for b in bad), error.end
    raise error


codecs.register_error("hsa_geo.c1", _c1)


def codec_of_label(label: str) -> str | None:
    """The Python codec that a charset label means on the web, or None.

    Args:
        label: As found in a header or ``<meta>``; case, blanks and stray quotes do not matter.

    Returns:
        A codec name, or None for a label that browsers do not know.

    Example:
        >>> codec_of_label("Latin-1"), codec_of_label("GB2312"), codec_of_label("utf-7")
        ('cp1252', 'gb18030', None)
    """
    return _CODECS.get(label.strip().strip("\"'`;,").strip().lower())


def _label_codec(raw: bytes) -> str | None:
    return codec_of_label(raw.decode("latin-1"))


def _from_meta(attributes: bytes) -> str | None:
    found: dict[bytes, bytes] = {}
    for name, value in _ATTR.findall(attributes):
        found.setdefault(name.lower(), value)
    if b"charset" in found:
        return _label_codec(found[b"charset"])
    if found.get(b"http-equiv", b"").strip(b"\"' \t").lower() == b"content-type":
        match = _IN_CONTENT.search(found.get(b"content", b"").strip(b"\"'"))
        return _label_codec(match.group(1)) if match else None
    return None


def _declared(data: bytes) -> str | None:
    """The codec that the page itself declares: prescan, then a patient second look."""
    head = _COMMENT.sub(b"", data[:PRESCAN_BYTES])
    for match in _META.finditer(head):
        codec = _from_meta(match.group(1))
        if codec:
            return codec
    xml = _XML_DECL.match(data[:PRESCAN_BYTES])
    codec = _label_codec(xml.group(1)) if xml else None
    if codec:
        return codec
    # A parser that meets a later <meta> changes the encoding too; malformed ones are forgiven.
    for match in _LOOSE.finditer(_COMMENT.sub(b"", data[:LATE_BYTES])):
        codec = _label_codec(match.group(1))
        if codec:
            return codec
    return None


def sniff_codec(data: bytes, charset: str | None = None) -> tuple[str, int]:
    """Find the codec of a page's bytes.

    Args:
        data: The page.
        charset: The transport's word, as in ``Content-Type: text/html; charset=...``; it
            overrides what the page declares, but not a byte order mark. (default: None)

    Returns:
        The Python codec and the length of the byte order mark.

    Raises:
        BuilderError: If ``charset`` is no label that browsers know.

    Example:
        >>> sniff_codec(b'<meta charset="latin-1"><p>caf\\xe9')
        ('cp1252', 0)
    """
    header = codec_of_label(charset) if isinstance(charset, str) else None
    if charset is not None and header is None:
        raise BuilderError(
            f"charset={shown(charset)} is not an encoding that browsers know: give a label such as "
            "'utf-8', 'windows-1252' or 'gbk', or None to detect it."
        )
    for mark, codec in _BOMS:
        if data.startswith(mark):
            return codec, len(mark)
    if header:
        return header, 0
    if data[:2] in (b"<\0", b"\0<"):  # UTF-16 without its mark: no other page starts like this
        return ("utf-16-le" if data[0] else "utf-16-be"), 0
    declared = _declared(data)
    if declared:
        return ("utf-8" if declared.startswith("utf-16") else declared), 0
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252", 0
    return "utf-8", 0


def decode_page(data: bytes, charset: str | None = None) -> str:
    r"""Decode a page's bytes; undecodable bytes become U+FFFD, as in a browser, with a warning.

    Args:
        data: The page.
        charset: As for :func:`sniff_codec`. (default: None)

    Returns:
        The markup.

    Raises:
        BuilderError: If ``charset`` is unknown, or the bytes are an image, PDF or archive.

    Warns:
        DecodingWarning: If bytes cannot be decoded; once, with the number of characters.

    Example:
        >>> decode_page(b"\xff\xfeh\x00i\x00"), decode_page(b"caf\xe9")
        ('hi', 'café')
    """
    for magic, what, remedy in _MAGIC:
        if data.startswith(magic):
            raise BuilderError(f"the source starts with {magic!r}, it is {what}: {remedy}.")
    codec, skip = sniff_codec(data, charset)
    single_byte = codec.startswith(("cp125", "iso8859", "cp874", "cp866", "koi8", "mac"))
    data = data[skip:]
    text = data.decode(codec, "hsa_geo.c1" if single_byte else "replace")
    if "\ufffd" in text:
        # A page may hold U+FFFD itself: what is left where bad bytes are skipped.
        bad = text.count("\ufffd") - data.decode(codec, "ignore").count("\ufffd")
        if bad:
            warnings.warn(
                f"{bad} of {len(text)} characters of the page cannot be decoded as {codec} and "
                "are lost (U+FFFD): if that is not its charset, give the right one as charset=.",
                DecodingWarning,
                stacklevel=4,
            )
    return text

"""From what the caller gives to markup within limits."""

from __future__ import annotations

import os
import re
import warnings

from hsa_geo.builders._arguments import shown
from hsa_geo.builders._charset import decode_page, sniff_codec
from hsa_geo.errors import BuilderError, HSAWarning, LimitError, TruncationWarning

__all__ = ["over_limit", "read_markup"]

# Elements that cannot pile up in each other: void ones, and those that a next one closes.
_FLAT_TAGS = """
    area base br col embed hr img input link meta param source track wbr html head body p li dt dd
    td th tr tbody thead tfoot caption colgroup option a button nobr h1 h2 h3 h4 h5 h6 select
"""
_NEVER_DEEP = frozenset(_FLAT_TAGS.split())
# As the tokeniser reads it: a quote opens a value only behind "=".
_ATTRIBUTE_SYNTAX = r"([^\s/>][^\s/>=]*+)(?:\s*+=\s*+(?:\"[^\"]*\"|'[^']*'|[^\s>\"'][^\s>]*+))?+"
_ATTRIBUTE = re.compile(_ATTRIBUTE_SYNTAX)
_TAG_OR_RAW = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(script|style|textarea|title|xmp|iframe|noembed|noframes|noscript)\b.*?(?:</\1|\Z)"
    rf"|<(/?)([a-z][^\s/>]*)(?:[\s/]++|{_ATTRIBUTE_SYNTAX})*+",
    re.I | re.S,
)
# Controls but for blanks, form feeds and the escape of terminals' colours.
_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
#: In data under the name of a page: more controls than these, and than this share of what is no
#: NUL, which parsers drop.  Random bytes have a tenth, pages that people read a ten-thousandth.
_STRAY, _STRAY_SHARE = 16, 0.02
_ASCII_WORD = re.compile(rb"[0-9A-Za-z]")
_LIKE_A_PATH = re.compile(r"[^<>\n]{1,4096}\.x?html?", re.I)
#: Most different attributes of one tag; the parser's time grows with the square of their number.
MAX_ATTRIBUTES = 10_000


def over_limit(on_limit: str, found: str, remedy: str, left_out: str, stacklevel: int = 4) -> None:
    """Raise, or warn that something is left out, as the caller chose.

    Args:
        on_limit: ``"error"`` or ``"truncate"``.
        found: What exceeds the limit, with the figures.
        remedy: The argument to raise.
        left_out: How much is left out, for the warning.
        stacklevel: How far up the warning points. (default: 4)

    Raises:
        LimitError: If ``on_limit`` is ``"error"``.
    """
    if on_limit == "error":
        raise LimitError(f'{found}: {remedy}, or pass on_limit="truncate".')
    warnings.warn(f"{found}: left out {left_out}.", TruncationWarning, stacklevel=stacklevel)


def read_markup(
    source: bytes | str | os.PathLike[str],
    charset: str | None,
    *,
    max_bytes: int | None,
    max_nesting: int | None,
    on_limit: str,
    size: int | None = None,
) -> str:
    """The markup of a page from bytes, text or a file, within limits.

    Args:
        source: Bytes (decoded as browsers do), markup, or a path to read.
        charset: The transport's charset for bytes and files.
        max_bytes: Largest size in bytes (of UTF-8 for markup).
        max_nesting: Most elements that may be open at once.
        on_limit: ``"error"`` or ``"truncate"``.
        size: Size of the whole source, if the bytes are only its beginning. (default: theirs)

    Returns:
        The markup without lone surrogates.

    Warns:
        HSAWarning: If a str is no markup but looks like the name of a file.

    Raises:
        BuilderError: If the source is of another type, or cannot be decoded.
        LimitError: If a limit is exceeded and ``on_limit`` is ``"error"``.
        OSError: If the file cannot be read.
    """
    if isinstance(source, str):
        if charset is not None:
            raise BuilderError(
                f"charset={shown(charset)} has no use for a str, which is decoded already: give "
                "the page as bytes, or drop charset."
            )
        if _LIKE_A_PATH.fullmatch(source):
            warnings.warn(
                f"{shown(source)} is read as the markup of a page, but looks like the name of a "
                f"file: give pathlib.Path({shown(source)}) to read the file.",
                HSAWarning,
                stacklevel=4,
            )
        text = _cut_text(source, max_bytes, on_limit)
    else:
        if isinstance(source, os.PathLike):
            try:
                file = open(source, "rb")  # noqa: SIM115
            except ValueError as error:  # a NUL or a lone surrogate
                raise BuilderError(
                    f"{os.fspath(source)!r} is no path of a file: {error}."
                ) from None
            with file:
                size = os.fstat(file.fileno()).st_size
                data = file.read() if max_bytes is None else file.read(max_bytes + 1)
                size = max(size, len(data))
        elif isinstance(source, (bytes, bytearray, memoryview)):
            data = bytes(source)
            size = max(size or 0, len(data))
        else:
            raise BuilderError(
                f"the source is a {type(source).__name__}: give bytes, markup as a str, or a "
                "pathlib.Path to a file."
            )
        data = _cut_bytes(data, size, max_bytes, on_limit)
        text = decode_page(data, charset)
        _refuse_binary(data, text, charset)
    if not text.isascii():  # lone surrogates cannot be told to the parser
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _cut_attributes(text.removeprefix("\ufeff"), on_limit)
    return _cut_nesting(text, max_nesting, on_limit)


def _refuse_binary(data: bytes, text: str, charset: str | None) -> None:
    """Without any markup a page is a text; characters that no text has, or nothing of ASCII in
    bytes that are no UTF-8 and name no charset, speak of other data under the name of a page.  With
    a "<", which other data have by chance, a few such characters are strays in a page."""
    if not data:
        return
    if "<" in text:
        nuls = text.count("\0")
        controls = sum(1 for _ in _NO_TEXT.finditer(text)) - nuls
        strange = controls > max(_STRAY, _STRAY_SHARE * (len(text) - nuls))
    else:
        strange = _NO_TEXT.search(text) is not None
        if charset is None and not strange and not _ASCII_WORD.search(data):
            strange = sniff_codec(data) == ("cp1252", 0)
    if strange:
        raise BuilderError(
            f"the {len(data)} bytes {data[:16]!r}{'...' if len(data) > 16 else ''} are neither "
            "markup nor text: skip them, or give the page itself."
        )


def _cut_bytes(data: bytes, size: int, max_bytes: int | None, on_limit: str) -> bytes:
    if max_bytes is None or size <= max_bytes:
        return data
    over_limit(
        on_limit,
        f"the page has {size} bytes, more than max_bytes={max_bytes}",
        "raise max_bytes",
        f"the last {size - max_bytes} bytes",
    )
    data = data[:max_bytes]
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":  # cut within a character
            data = data[: error.start]
    return data


def _cut_text(text: str, max_bytes: int | None, on_limit: str) -> str:
    if max_bytes is None or len(text) * 4 <= max_bytes:
        return text
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= max_bytes:
        return text
    return _cut_bytes(data, len(data), max_bytes, on_limit).decode("utf-8", "replace")


def _cut_nesting(text: str, max_nesting: int | None, on_limit: str) -> str:
    """Guard the parser, whose time grows with the square of the number of open elements."""
    if max_nesting is None or text.count("<") <= max_nesting:
        return text
    opened: dict[str, int] = {}
    depth = 0
    for match in _TAG_OR_RAW.finditer(text):
        name = match[3]
        if name is None or (name := name.lower()) in _NEVER_DEEP:
            continue
        if match[2]:
            if opened.get(name, 0) > 0:
                opened[name] -= 1
                depth -= 1
        else:
            opened[name] = opened.get(name, 0) + 1
            depth += 1
            if depth > max_nesting:
                start = match.start()
                over_limit(
                    on_limit,
                    f"the page has more than max_nesting={max_nesting} elements open at once",
                    "raise max_nesting",
                    f"the last {len(text) - start} of {len(text)} characters",
                )
                return text[:start]
    return text


def _cut_attributes(text: str, on_limit: str) -> str:
    """Guard the parser, whose time grows with the square of the attributes of one tag."""
    least = 2 * MAX_ATTRIBUTES  # a letter and a blank each
    if len(text) <= least:
        return text
    for match in _TAG_OR_RAW.finditer(text):
        if match[3] is None or match.end() - match.start() <= least:
            continue
        attributes = _ATTRIBUTE.finditer(match[0], match.end(3) - match.start())
        found = len({attribute[1].lower() for attribute in attributes})  # repeated ones are dropped
        if found > MAX_ATTRIBUTES:
            start = match.start()
            over_limit(
                on_limit,
                f"a tag {match[3]!r} of the page has {found} attributes, more than "
                f"{MAX_ATTRIBUTES}",
                "shorten it",
                f"the last {len(text) - start} of {len(text)} characters",
            )
            return text[:start]
    return text

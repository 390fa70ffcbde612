"""The subject and the text of an e-mail, however broken it is.

Every mail gives two strings: nothing in it (unknown charsets, bytes that are no text in theirs,
broken MIME, endless nesting, huge parts) raises an error, what went wrong is counted.  Only the
subject is taken from the headers: the others say by which way and through which filters a mail
came, and so whether it is spam.

Example:
    >>> mail = b"Subject: =?utf-8?q?Caf=C3=A9?=\\nContent-Type: text/html\\n\\n<p>Hi<p>you&nbsp;!"
    >>> subject, body, faults = mail_text(mail)
    >>> subject, body
    ('Café', 'Hi\\n\\nyou !')
"""

from __future__ import annotations

import codecs
import email
import re
import warnings
from collections import Counter
from email.header import decode_header
from email.message import Message
from email.policy import Compat32
from html import unescape
from typing import Any

from hsa_geo.builders._html_tags import BLOCK_TAGS
from hsa_geo.builders.html import parse_html
from hsa_geo.errors import BuilderError, HSAWarning

__all__ = ["MAX_BYTES", "MAX_HEADER", "decode_bytes", "html_text", "mail_text"]

#: Longest mail that is read; what follows is left out.
MAX_BYTES = 1 << 22
#: Longest body in characters.
MAX_CHARS = 1 << 19
#: Most parts that are looked at.
MAX_PARTS = 256
#: Longest header that is read, in characters; what follows in it is left out.
MAX_HEADER = 1 << 12
#: Most parameters of a header of a part that are read.
MAX_PARAMETERS = 64
#: Deepest parts that are looked into.
MAX_DEPTH = 32

_UNREAD = "application/x-too-deep"
_SILENT = frozenset(("script", "style", "template", "noscript", "title", "head"))
_MARKUP = re.compile(r"<[^<>]{0,5000}>")
_BLANK = re.compile(r"[^\S\n]+")
_EMPTY_LINES = re.compile(r"\s*\n\s*\n\s*")
# Names of codecs that are no charsets of mails, and slow on hostile input.
_NO_CHARSETS = frozenset(("punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined"))


class _ShortHeaders(Compat32):
    """Headers that are read are cut: what reads them takes time in the square of their length."""

    faults: Counter[str] | None = None

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, whole = super().header_source_parse(sourcelines)
        value, key = whole, name.lower()
        if key == "subject" or key.startswith("content-"):
            value = value[:MAX_HEADER]
        if key.startswith("content-"):
            value = ";".join(value.split(";", MAX_PARAMETERS + 1)[: MAX_PARAMETERS + 1])
        if whole[len(value) :].strip("; \t\r\n") and self.faults is not None:
            self.faults["shortened"] = 1
        return name, value


class _Message(Message):
    """A message whose parts are nested so deep at most; every line is held against all levels."""

    depth = 0

    def attach(self, payload: Any) -> None:
        if isinstance(payload, _Message):
            payload.depth = self.depth + 1
        super().attach(payload)

    def get_content_type(self) -> str:
        return super().get_content_type() if self.depth <= MAX_DEPTH else _UNREAD


def mail_text(source: bytes) -> tuple[str, str, Counter[str]]:
    """Subject, body, and what was wrong.

    Args:
        source: The mail as it came; of each header that is read, the first ``MAX_HEADER``
            characters count.

    Returns:
        The subject on one line; the body, its parts one after the other and blank lines between
        them: plain text, or the text of HTML where there is no plain one to choose; no
        attachments.  And counts: ``html`` parts read, ``broken`` MIME, ``undecodable`` texts,
        ``shortened`` for lengths, ``attachments`` left out.

    Example:
        See the example of :mod:`hsa_geo.datasets.mail_text`.
    """
    faults = Counter[str]()
    if len(source) > MAX_BYTES:
        faults["shortened"] = 1
        source = source[:MAX_BYTES]
    try:
        policy = _ShortHeaders(faults=faults, message_factory=_Message)  # type: ignore[call-arg]
        message = email.message_from_bytes(source, _Message, policy=policy)
        subject = _subject(message, faults)
        texts = _texts(message, faults)
    except Exception:  # the parser recurses, and has bugs
        faults["broken"] = 1
        head, _, rest = source.replace(b"\r\n", b"\n").partition(b"\n\n")
        found = re.search(rb"^subject:([^\n]*)", head, re.IGNORECASE | re.MULTILINE)
        subject = " ".join(decode_bytes(found.group(1), None, faults).split()) if found else ""
        subject = subject[:MAX_HEADER]
        texts = [decode_bytes(rest, None, faults)]
    body = "\n\n".join(filter(None, (text.strip() for text in texts)))
    if len(body) > MAX_CHARS:
        faults["shortened"] = 1
        body = body[:MAX_CHARS]
    return subject, body, faults


def decode_bytes(content: bytes, charset: str | None, faults: Counter[str] | None = None) -> str:
    """Text of bytes in a charset that may be wrong, unknown or missing.

    Args:
        content: The bytes.
        charset: What they are said to be in.
        faults: ``undecodable`` goes up if that is not true. (default: :obj:`None`)

    Returns:
        The text in that charset, else in UTF-8, else in Windows-1252.

    Example:
        >>> decode_bytes(b"caf\\xe9", "no such charset"), decode_bytes(b"caf\\xc3\\xa9", None)
        ('café', 'café')
    """
    if charset:
        try:
            name = codecs.lookup(charset).name.replace("-", "_")
            if name not in _NO_CHARSETS:
                return content.decode(charset)
        except (LookupError, UnicodeError, ValueError):
            pass
        if faults is not None:
            faults["undecodable"] += 1
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def html_text(source: str, faults: Counter[str] | None = None) -> str:
    """Text of a page; blank lines between its blocks, line breaks at ``<br>``.

    Args:
        source: The markup.
        faults: ``broken`` goes up if it cannot be parsed; then its tags are cut out.

    Returns:
        The text.

    Raises:
        MissingPackageError: If selectolax is not installed.

    Example:
        >>> html_text("<h1>A</h1><style>b</style>one <b>line</b><br>two<div>box")
        'A\\n\\none line\\ntwo\\n\\nbox'
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HSAWarning)
            root = parse_html(source).root
    except BuilderError:
        if faults is not None:
            faults["broken"] += 1
        return unescape(_MARKUP.sub("\n", source))
    pieces: list[str] = []
    stack: list[tuple[Any, str | None]] = [(root, None)]
    while stack:
        node, closing = stack.pop()
        if node is None:
            pieces.append(closing or "")
            continue
        tag = node.tag
        if node.next is not None and node is not root:
            stack.append((node.next, None))
        if tag == "-text":
            pieces.append(_BLANK.sub(" ", (node.text_content or "").replace("\n", " ")))
        elif tag == "br":
            pieces.append("\n")
        elif tag not in _SILENT and not tag.startswith("-"):
            if tag in BLOCK_TAGS:
                pieces.append("\n\n")
                stack.append((None, "\n\n"))
            if node.child is not None:
                stack.append((node.child, None))
    text = _EMPTY_LINES.sub("\n\n", "".join(pieces))
    return "\n".join(" ".join(line.split()) for line in text.split("\n")).strip()


def _subject(message: Message, faults: Counter[str]) -> str:
    raw = message.get("Subject", "")
    try:
        parts = decode_header(raw)
    except Exception:  # of email, binascii, ...
        parts = [(str(raw), None)]
    texts = []
    for part, charset in parts:
        if isinstance(part, str):
            part = part.encode("utf-8", "surrogateescape")
        texts.append(decode_bytes(part, charset, faults))
    return " ".join("".join(texts).split())


def _texts(message: Message, faults: Counter[str]) -> list[str]:
    """Texts of the parts that are shown, in order."""
    texts: list[str] = []
    stack, seen = [message], 0
    while stack:
        part = stack.pop()
        seen += 1
        if seen > MAX_PARTS:
            faults["shortened"] = 1
            break
        content = part.get_payload()
        if isinstance(content, list):
            kids = [kid for kid in content if isinstance(kid, Message)]
            if part.get_content_type() == "multipart/alternative":
                kids = _alternative(kids)
            stack += kids[::-1]
            continue
        faults["broken"] += bool(part.defects)
        kind = part.get_content_type()
        shown = kind.startswith("text/") or "/" not in kind or kind.startswith("multipart/")
        if not shown or part.get_content_disposition() == "attachment":
            if kind == _UNREAD:
                faults["shortened"] = 1
            else:
                faults["attachments"] += 1
            continue
        text = _decoded(part, faults)
        if kind.startswith("text/html"):
            faults["html"] += 1
            text = html_text(text, faults)
        texts.append(text.replace("\r\n", "\n").replace("\r", "\n"))
    faults["broken"] = int(faults["broken"] > 0)
    return texts


def _alternative(kids: list[Message]) -> list[Message]:
    """One of several that say the same: plain text that is not empty, else the last."""
    for kid in kids:
        content = kid.get_payload()
        if kid.get_content_type() == "text/plain" and isinstance(content, str) and content.strip():
            return [kid]
    return kids[-1:]


def _decoded(part: Message, faults: Counter[str]) -> str:
    try:
        content = part.get_payload(decode=True)
    except Exception:  # of binascii, quopri, uu
        faults["undecodable"] += 1
        content = None
    if not isinstance(content, bytes):
        content = str(part.get_payload()).encode("utf-8", "surrogateescape")
    try:
        charset = part.get_content_charset()
    except Exception:  # RFC 2231 values may name charsets, too
        charset = None
    return decode_bytes(content, charset, faults)

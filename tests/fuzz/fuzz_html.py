"""Pages that went wrong: structured mutations of valid ones, for from_html."""

# ruff: noqa: SIM905
from __future__ import annotations

import base64
import random
import re
from pathlib import Path

from fuzz_case import ODD, Case, mutated_bytes, options_of, truth
from fuzz_image import seed_files

from hsa_geo.builders import from_html

PAGES = [
    """<!DOCTYPE html><html lang=en><head><meta charset=utf-8><title>Log in</title></head><body>
    <nav><ul><li><a href=/>Home</a><li><a href="/a?b=c&amp;d">About us</a></ul></nav>
    <h1>Welcome back!</h1><p>Please log in. It is <b>free</b>, says Dr. Smith.<br>Really.</p>
    <form action=/login method=post id=f class="a b"><label for=u>User</label>
    <input id=u name=user placeholder="Your name"><input type=password name=p>
    <input type=hidden name=csrf value=x><select name=s><option>One<optgroup label=G>
    <option selected>Two</optgroup></select><textarea name=t>Text\nhere</textarea>
    <button type=submit>Go on</button></form></body></html>""",
    """<table><caption>Prices</caption><thead><tr><th>Item<th colspan=2>Price</thead>
    <tbody><tr><td rowspan=2>Tea<td>1.5<td>EUR<tr><td>2<td><table><tr><td>in<td>side</table>
    </tbody><tfoot><tr><td>Sum<td colspan=0>3.5</tfoot></table>
    <table><form action=x><tr><td><input name=q><td><input type=submit value=Search></form></table>
    """,
    """<main><section><h2>One</h2><p>First. Second? Third!</p><h3>One a</h3><div>text
    <h4>deep</h4></div></section><article><header>Head</header><h2>Two</h2>
    <figure><img src="a.png" alt="A picture"><figcaption>Cap</figcaption></figure>
    <aside hidden>not shown</aside><div style="display:none">nor this</div></article>
    <details open><summary>More</summary>inside</details><dialog open>hi</dialog></main>""",
    """<p>&lt;&#65;&#x1F600;&nbsp;&notin;&copy &#0;&#xD800;&#x110000; e-mail: x@y.org,
    http://a.b/c?d=1</p><p dir=rtl>مرحبا بالعالم؟ שלום</p><p>東京は。大きい！한국어 हिन्दी।</p>
    <svg><title>Logo</title><text>svg text</text><path d="M0 0"/></svg><math><mi>x</mi></math>
    <video title=film src=x></video><audio></audio><canvas>c</canvas><iframe title=t></iframe>
    <object>o</object><script>var a = "<p>";</script><style>p{}</style><noscript>n</noscript>""",
    """<frameset cols="1,2"><frame src=a title=b><frame><noframes>none</noframes></frameset>""",
    """<ul><li>one<ul><li>two<ol><li>three</ol></ul><li>four</ul><dl><dt>term<dd>def</dl>
    <fieldset><legend>L</legend><input type=radio name=r><input type=checkbox checked disabled>
    <input type=image src=b.gif alt=go><meter value=1>m</meter><progress></progress></fieldset>
    <template><p>t</p></template><plaintext>all </b> the rest""",
    "<p>short</p>",
    "just text without a tag. And more",
]
TAGS = (
    "p div b i a form table tr td th tbody thead tfoot caption colgroup col ul ol li dl dt dd br "
    "input select option optgroup textarea button label img svg text title math mi script style "
    "template noscript frameset frame iframe object embed video audio canvas body html head meta "
    "base link dialog details summary plaintext xmp listing pre h1 h2 h3 h6 nav main section "
    "article aside header footer figure figcaption fieldset legend hr center font marquee x-y "
    "ruby rt rp map area picture source slot foreignObject desc annotation-xml search menu"
).split()
ATTRIBUTES = (
    "hidden style=display:none style='visibility:hidden' id=u for=u name=q type=hidden type=image "
    "type=TEXT type value=v href=# href=javascript:x src=a.png src='../a.png' src=/etc/passwd "
    "src='a.png?x#y' src=%00 src=// src=file:///a.png src=http://a/b.png alt='' alt=x title=t "
    "colspan=2 rowspan=3 colspan=0 rowspan=0 colspan=-1 colspan=999999999999 rowspan=65535 "
    "colspan=1e9 colspan=x rowspan='' width=1 height=1 width=0 open checked selected multiple "
    "placeholder='your words' aria-label=a aria-hidden=true class='a b' action=/x method=post "
    "form=f charset=utf-8 http-equiv=refresh content='text/html; charset=gbk' label=L dir=rtl "
    "width=1px style=display:none!important usemap=#m role=button contenteditable disabled list=u"
).split(" ")
SCRAPS = [
    *(
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "<!",
        "<?",
        "</",
        "<",
        ">",
        "/>",
        "'",
        '"',
        "=",
        "&",
        "&#",
    ),
    *("&#x", "&amp", "&#99999999999;", "&NotEqualTilde;", "\0", "\f", "\x0b", "\x85", "\u2028"),
    *("\ufeff", "\ufffd", "\ud800", "\udfff", "\U0010ffff", "\u202e", "\u200b", "é", "e\u0301"),
    *("a" * 300, "a " * 50, "1,234.56", "...!?", "<!DOCTYPE html>", "<!DOCTYPE", "</p>", "</br>"),
    *("</body>", "</html>", "</form>", "</table>", "</select>", "</script", "\r\n", "\r", "\t"),
]
CHARSETS = (
    "utf-8 utf-16 utf-16-le utf-16-be utf-32 utf-7 latin-1 cp1252 gbk gb18030 big5 shift_jis "
    "euc-jp iso-2022-jp euc-kr koi8-r cp1251 mac-roman iso-8859-8"
).split()
SAID = [
    *CHARSETS,
    *("x-user-defined", "replacement", "iso-2022-kr", "hz-gb-2312", "utf8", "unicode", "none"),
    *("", " utf-8 ", "UTF-16", "idna", "punycode", "base64", "zlib", "rot13", "unicode_escape"),
    *("mbcs", "\0", "\ud800", "a" * 200, "raw_unicode_escape", "undefined", "ascii", "cp65001"),
]
OPTIONS = {
    "images": [True, False],
    "patch_size": [1, 2, 4, 8, 16, 64, 100],
    "max_side": [1, 7, 8, 16, 64],
    "hash_buckets": [1, 2, 1000, 2**14],
    "field_tokens": [1, 2, 64],
    "form_tokens": [True, False],
    "include_hidden": [True, False],
    "tables": ["grid", "grid", "sequence"],
    "sets": ["boxes", "nav", ["nav", "ul"], ("table",), ["div", "boxes"], "b", ["tr"], {"p"}],
    "sectioning": [True, False],
    "collapse": [True, False],
    "names": [True, True, False],
    "max_bytes": [10, 200, 2000, 2**25, 2**25, None],
    "max_nesting": [1, 20, 200, 10_000, None],
    "max_depth": [1, 5, 20, 1024, None],
    "max_leaves": [1, 10, 50, 2**17, None],
    "on_limit": ["error", "truncate", "truncate"],
}
KEYS = frozenset(
    "tree_index tree_level tree_domain tree_pos num_nodes text_x text_index image_x image_index "
    "leaf_kind form_node form_order".split()
)
_TOKEN = re.compile(r"<[^>]*>|[^<]+|<")


def case(rng: random.Random, folder: Path, pages: list[str] = PAGES) -> Case:
    """A page and options."""
    text = rng.choice(pages)
    if len(text) > 8000:  # a window of a long page
        at = rng.randrange(len(text) - 4000)
        text = text[at : at + rng.choice((500, 2000, 4000))]
    tokens = _TOKEN.findall(text)
    for _ in range(min(int(rng.expovariate(0.25)), 20)):
        _mutate(rng, tokens)
    text = "".join(tokens)
    if rng.random() < 0.1:
        text = text[: rng.randrange(len(text) + 1)]
    options = options_of(rng, OPTIONS)
    if rng.random() < 0.3:
        options["base"] = rng.choice((str(folder), folder, folder / "none", str(folder).encode()))
    if rng.random() < 0.01:
        options["base"] = rng.choice((*ODD, "a\0", folder / "a.png"))
    source, allowed = _source(rng, text, options, folder)
    keys = KEYS | ({"tree_name"} if truth(options.get("names", True)) else set())
    return Case(from_html, source, options, allowed, keys)


def _mutate(rng: random.Random, tokens: list[str]) -> None:
    at = rng.randrange(len(tokens) + 1)
    kind = rng.randrange(14)
    if kind == 0:
        tokens.insert(at, _tag(rng))
    elif kind == 1:
        tokens.insert(at, rng.choice(SCRAPS))
    elif kind == 2:
        del tokens[at : at + 1 + int(rng.expovariate(0.5))]
    elif kind == 3:
        end = at + 1 + int(rng.expovariate(0.3))
        tokens[at:at] = tokens[at:end] * rng.choice((1, 1, 2, 20))
    elif kind == 4:
        to, part = rng.randrange(len(tokens) + 1), tokens[at : at + 3]
        del tokens[at : at + 3]
        tokens[to:to] = part
    elif kind == 5:  # elements in each other
        tag, depth = rng.choice(TAGS), rng.choice((2, 5, 20, 20, 100, 600))
        tokens.insert(at, f"<{tag}>" * depth)
        if rng.random() < 0.5:
            tokens.insert(min(at + 1 + rng.randrange(4), len(tokens)), f"</{tag}>" * depth)
    elif kind == 6:
        tokens.insert(at, f'<img alt="{rng.choice(("", "x y", "x" * 99))}" src="{_uri(rng)}">')
    elif kind == 7 and at < len(tokens):
        tokens[at] = tokens[at].swapcase()
    elif kind == 8 and at < len(tokens) and len(tokens[at]) > 2:
        inside = rng.randrange(1, len(tokens[at]))
        scrap = rng.choice((*SCRAPS, " " + rng.choice(ATTRIBUTES) + " "))
        tokens[at] = tokens[at][:inside] + scrap + tokens[at][inside:]
    elif kind == 9:
        tokens.insert(at, "".join(chr(_code(rng)) for _ in range(rng.randrange(1, 20))))
    elif kind == 10:
        rows = "".join(f"<tr>{''.join(_cell(rng) for _ in range(rng.randrange(5)))}"
                       for _ in range(rng.randrange(1, 5)))  # fmt: skip
        tokens.insert(at, f"<table>{rows}" + rng.choice(("", "</table>")))
    elif kind == 11:
        tokens.insert(at, f'<meta charset="{rng.choice(SAID)}">')
    elif kind == 12:
        tokens.insert(at, f"<{rng.choice(TAGS)} {' '.join(rng.choices(ATTRIBUTES, k=40))}>")
    elif tokens and at < len(tokens) and tokens[at].startswith("<"):
        tokens[at] = re.sub(r"[\w-]+", lambda m: rng.choice(TAGS), tokens[at], count=1)


def _tag(rng: random.Random) -> str:
    tag = rng.choice(TAGS)
    if rng.random() < 0.3:
        return f"</{tag}>"
    attributes = " ".join(rng.choices(ATTRIBUTES, k=rng.randrange(4)))
    return f"<{tag} {attributes}>" if attributes else f"<{tag}>"


def _cell(rng: random.Random) -> str:
    spans = rng.choice(("", f" rowspan={rng.randrange(6)}", f" colspan={rng.randrange(6)}"))
    return f"<t{rng.choice('dh')}{spans}>{rng.choice(('a', '', 'b c', '<br>', '<input>'))}"


def _code(rng: random.Random) -> int:
    return rng.choice((rng.randrange(128), rng.randrange(0x3000), rng.randrange(0x110000)))


def _uri(rng: random.Random) -> str:
    if rng.random() < 0.2:
        return rng.choice(
            ("a.png", "b.gif", "../a.png", "sub/c.jpg", ".", "", "a\0", "loop", "data:")
        )
    data = rng.choice(seed_files())
    if rng.random() < 0.7:
        data = mutated_bytes(rng, data, seed_files())
    kind = rng.choice(("image/png", "image/gif", "IMAGE/JPEG", "text/plain", "", "image/svg+xml"))
    coded = base64.b64encode(data).decode()
    if rng.random() < 0.2:
        at = rng.randrange(len(coded) + 1)
        coded = (
            coded[:at] + rng.choice(("=", "%3D", " ", "\n", "é", "-_", "%", "&amp;")) + coded[at:]
        )
    return f"data:{kind}{rng.choice((';base64', ';BASE64', ';charset=x;base64', ''))},{coded}"


def _source(rng: random.Random, text: str, options: dict, folder: Path) -> tuple:
    """The page as str, bytes in some charset, or a file."""
    if rng.random() < 0.4:
        if rng.random() < 0.02:
            options["charset"] = rng.choice(SAID)
        return text, ()
    charset = rng.choice(("utf-8", rng.choice(CHARSETS)))
    if charset == "utf-8" and rng.random() < 0.5:
        data = text.encode("utf-8", "surrogatepass")
    else:
        data = text.encode(charset, "replace")
    if rng.random() < 0.2:
        data = mutated_bytes(rng, data)
    if rng.random() < 0.3:
        options["charset"] = rng.choice((charset, rng.choice(SAID)))
    if rng.random() < 0.01:
        options["charset"] = rng.choice(ODD)
    if rng.random() < 0.03:
        path = folder / "page.html"
        path.write_bytes(data)
        return rng.choice((path, path, folder / "none.html", folder, Path("a\0b"))), (OSError,)
    return rng.choice((data, data, bytearray(data), memoryview(data))), ()

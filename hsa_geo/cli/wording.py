"""Messages of the library in the words of the command.

The library's errors name arguments of its functions, which a command line does not have.  Here
they become options of the command, or say that the way leads through Python.
"""

from __future__ import annotations

import re

__all__ = ["in_words"]

_PYTHON = "(limits can be raised in Python, by the functions of hsa_geo.builders)"

#: Patterns and what stands for them, in this order.
_WORDS = [
    (
        r"pass include_hidden=True if its content waits for a script",
        "look at what it hides by `hsa-geo inspect --include-hidden`",
    ),
    (
        r"pass punctuation=True if punctuation and symbols matter",
        "give --punctuation to `hsa-geo inspect` if punctuation and symbols matter",
    ),
    (r"give the right one as charset=", "convert the page to UTF-8"),
    (r"give another, or name its pages with pages=", "give another, or name them so"),
    (r"(?:If you trust it, )?raise PIL\.Image\.MAX_IMAGE_PIXELS and max_pixels", "make it smaller"),
    (r"pass max_side or a larger patch_size, or raise max_leaves", f"make it smaller {_PYTHON}"),
    (r"raise max_pixels if you trust it", f"make it smaller {_PYTHON}"),
    (r"has children at level (\d+), but max_depth is (\d+): raise it", r"goes below level \2"),
    (r"leaves \(max_leaves\): raise it, or look", "leaves: look"),
    (r', or pass on_limit="truncate"', ""),
    (r"raise max_\w+", f"cut it into parts {_PYTHON}"),
    (r"more than max_(?:depth|nesting)=(\d+) elements", r"more than \1 elements"),
    (r"\bmax_\w+=(\d+)", r"the limit of \1"),
    (r"raise field_tokens, or shrink", "shorten them, or shrink"),
    (r"beyond field_tokens=(\d+)", r"beyond \1 of each"),
]
_RULES = [(re.compile(pattern), words) for pattern, words in _WORDS]
#: What a message quotes: names of files and content, which stay as they are.  An apostrophe within
#: a word opens and ends nothing, and ``argument="value"`` is a library's word.
_QUOTED = re.compile(r"""((?<!\w)'(?:[^']|'(?=\w))*'(?!\w)|(?<![\w=])"[^"]*")""")


def in_words(message: str) -> str:
    """A message of the library, as the command says it; what it quotes is left alone.

    Example:
        >>> in_words("the image has 9 x 9 pixels, more than max_pixels=64: raise max_pixels.")
        'the image has 9 x 9 pixels, more than the limit of 64: cut it into parts (limits can be \
raised in Python, by the functions of hsa_geo.builders).'
    """
    parts = _QUOTED.split(message)  # the quoted ones at the odd places
    for pattern, words in _RULES:
        parts[::2] = [pattern.sub(words, part) for part in parts[::2]]
    return "".join(parts)

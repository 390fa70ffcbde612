"""Pages of real manuals with their pictures, as signal trees.

Two manuals come as Debian packages: the English manual of GIMP (GFDL), 624 pages of which 462
have pictures, and the reference of GRASS GIS (GPL), 482 pages of which 143 have; both have 6
sections.  The label of a page is its section; what of a page is cut so that the label does not
stand on it, is said in :mod:`hsa_geo.datasets.manual_markup`.

Example:
    >>> dataset = ManualPages("data/manual_pages", manual="gimp-help")  # doctest: +SKIP
    >>> page = dataset[2]  # doctest: +SKIP
    >>> page.word_x.shape, page.image_x.shape, page.y  # doctest: +SKIP
    (torch.Size([35]), torch.Size([48, 192]), tensor([4]))
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hsa_geo.builders import from_html
from hsa_geo.builders.html import LeafKind
from hsa_geo.builders.tokens import normalise, words
from hsa_geo.data import SignalTree
from hsa_geo.datasets.arguments import options_dict
from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.manual_markup import count_templates, visible, without_templates
from hsa_geo.datasets.manual_sections import manual_of, sections_of
from hsa_geo.datasets.stored import StoredTrees
from hsa_geo.errors import DecodingWarning, UnsupportedError

__all__ = ["ManualPages", "number_words"]

_OWN = ("base", "charset", "form_tokens", "include_hidden", "names")


class ManualPages(StoredTrees):
    r"""Pages of a manual as trees of words and patches of pictures, labelled by section.

    The first use fetches the package through apt-get (36 to 50 MB), checks its sha256, unpacks
    the pages and their pictures, cuts what would give the section away
    (:mod:`hsa_geo.datasets.manual_markup`) and builds the trees with
    :func:`hsa_geo.builders.from_html`.

    Each tree has

    ================  =====================  =================================================
    ``word_x``        ``[n]`` int64          words, places in :attr:`vocabulary`; those of a
                                             picture's alternative text too
    ``word_index``    ``[n]`` int64          their leaf rows
    ``image_x``       ``[P, 3*p*p]`` uint8   patches of pictures, channel first; none where the
                                             page has no readable picture
    ``image_index``   ``[P]`` int64          their leaf rows
    ``leaf_kind``     ``[N]`` int64          :class:`~hsa_geo.builders.html.LeafKind`
    ``y``             ``[1]`` int64          section, place in :attr:`classes`
    ``page_id``       ``[1]`` int64          place in :attr:`pages`, the file names
    ``group_id``      ``[1]`` int64          place in :attr:`groups`
    ================  =====================  =================================================

    :meth:`split` keeps a group on one side: pages of one sub-section share whole phrases, and some
    of their pictures.

    Args:
        root: Folder that holds ``raw`` and ``processed``; the manuals may share it.
        manual: ``"gimp-help"`` or ``"grass"``. (default: :obj:`"gimp-help"`)
        transform: Applied to a tree on every access. (default: :obj:`None`)
        pre_transform: Applied once before storing. (default: :obj:`None`)
        pre_filter: Keeps the trees for which it is true. (default: :obj:`None`)
        force_reload: Build the trees again. (default: :obj:`False`)
        log: Show progress and the report while building. (default: :obj:`True`)
        options: Keyword arguments of :func:`hsa_geo.builders.from_html`, such as
            ``{"max_side": 32}`` or ``{"sectioning": True}``; trees of different options are
            stored side by side. (default: none)

    Raises:
        UnsupportedError: If the manual is not known, or an option is not for users to set.
        DownloadError: If the package cannot be fetched.
        ArchiveError: If it has another sha256, or is not what it should be.
        MissingPackageError: If selectolax or Pillow is not installed.

    Example:
        >>> pages = ManualPages("data/manual_pages", options={"max_side": 32})  # doctest: +SKIP
        >>> train, validation, test = pages.split(fold=0)  # doctest: +SKIP
    """

    noun = "pages"
    stored = ("vocabulary", "pages", "groups")
    part_size = 64

    #: Words in the order of the number of pages they stand on, the most common first.
    vocabulary: list[str]
    #: File name of each page, by ``page_id``.
    pages: list[str]
    #: Name of each group, by ``group_id``.
    groups: list[str]

    def __init__(
        self,
        root: str | os.PathLike[str],
        manual: str = "gimp-help",
        transform: Callable[[SignalTree], Any] | None = None,
        pre_transform: Callable[[SignalTree], SignalTree] | None = None,
        pre_filter: Callable[[SignalTree], bool] | None = None,
        force_reload: bool = False,
        log: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.manual = manual_of(manual)
        wrong = sorted(set(options_dict(options)) & set(_OWN))
        if wrong:
            raise UnsupportedError(
                f"options has {wrong[0]!r}, which the dataset sets itself: leave it out."
            )
        super().__init__(root, transform, pre_transform, pre_filter, force_reload, log, options)

    @property
    def file_name(self) -> str:  # type: ignore[override]
        """Start of the names of the stored files."""
        return f"manual_pages-{self.manual.name}"

    @property
    def archives(self) -> tuple[Archive, ...]:  # type: ignore[override]
        """The package of the manual."""
        return (self.manual.archive,)

    @property
    def classes(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the sections."""
        return self.manual.rules.sections

    def items(self) -> Sequence[str]:
        """The pages that belong to a section, by file name."""
        folder, manual = self.raw(), self.manual
        sources = {path.name: path.read_bytes() for path in sorted(folder.glob("*.html"))}
        texts = {name: source.decode("utf-8", "replace") for name, source in sources.items()}
        self._sections = sections_of(manual.name, texts)
        self.pages = list(self._sections)
        self.groups = sorted({group for _, group in self._sections.values()})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DecodingWarning)
            shown = {
                name: visible(sources[name], manual.rules, manual.charset) for name in self.pages
            }
        templates = count_templates(shown)
        self._markup = {name: without_templates(page, templates) for name, page in shown.items()}
        self._cut = {"blocks": len(templates.blocks), "images": len(templates.images)}
        return self.pages

    def tree(self, item: str) -> SignalTree:
        """The tree of one page; its words are numbered when all are known."""
        tree = from_html(self._markup[item], base=self.raw(), **self.options)
        label, group = self._sections[item]
        tree.word, tree.word_index = _words(tree)
        for key in ("text_x", "text_index", "form_node", "form_order"):
            del tree[key]
        tree.y = torch.tensor([label])
        tree.page_id = torch.tensor([self.pages.index(item)])
        tree.group_id = torch.tensor([self.groups.index(group)])
        return tree

    def finish(
        self, items: Sequence[str], trees: list[SignalTree], extras: Sequence[Mapping[str, Any]]
    ) -> tuple[list[SignalTree], dict[str, Any]]:
        """Number the words of all pages, and count what there is."""
        trees, report = super().finish(items, trees, extras)
        self.vocabulary = number_words(trees)
        counts = Counter(self.classes[int(tree.y)] for tree in trees)
        pictures = sum(len(tree.image_x) > 0 for tree in trees)
        report |= {
            "manual": self.manual.name,
            "pages_of": {name: counts[name] for name in self.classes},
            "groups": len(self.groups),
            "with_pictures": pictures,
            "words": len(self.vocabulary),
            "template": self._cut,
        }
        return trees, report


def _words(tree: SignalTree) -> tuple[list[str], torch.Tensor]:
    """Normalised words of a page with their leaf rows: of words and of alternative texts."""
    found, rows = [], []
    kinds = tree.leaf_kind.tolist()
    for row, (kind, name) in enumerate(zip(kinds, tree.tree_name)):
        if kind == LeafKind.WORD:
            found.append(normalise(name))
            rows.append(row)
        elif kind == LeafKind.IMAGE and name not in ("img", "svg"):
            of_name = [normalise(word) for word in words(name)]
            found += of_name
            rows += [row] * len(of_name)
    return found, torch.tensor(rows, dtype=torch.int64)


def number_words(trees: Sequence[SignalTree]) -> list[str]:
    """Turn the list ``word`` of every tree into ``word_x``, numbers in a common vocabulary.

    Args:
        trees: Trees with a list of strings ``word``; it is replaced in place.

    Returns:
        The vocabulary: words by the number of trees that hold them, the most first, and in the
        order of the alphabet among equals.

    Example:
        >>> tree = SignalTree.from_parents([1, -1], word_index=torch.tensor([0, 0]))
        >>> tree.word = ["no", "go"]
        >>> number_words([tree]), tree.word_x.tolist()
        (['go', 'no'], [1, 0])
    """
    counts = Counter[str]()
    for tree in trees:
        counts.update(set(tree.word))
    vocabulary = sorted(counts, key=lambda word: (-counts[word], word))
    number = {word: place for place, word in enumerate(vocabulary)}
    for tree in trees:
        tree.word_x = torch.tensor([number[word] for word in tree.word], dtype=torch.int64)
        del tree["word"]
    return vocabulary

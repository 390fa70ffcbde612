"""The pages of the documentation, their fenced blocks, the commands and the archives in those."""

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
EVERY_PAGE = [*PAGES, ROOT / "CHANGELOG.md", *sorted((DOCS / "api").glob("*.md"))]

FENCE = re.compile(r"(`{3,})(.*)")


@dataclass
class Block:
    """A fenced block: its language, its first line's number, its text, what stands before it."""

    language: str
    line: int
    text: str
    between: str = ""


def blocks_of(markdown: str) -> list[Block]:
    """The fenced blocks of a page, outermost fences only."""
    blocks: list[Block] = []
    fence, between, lines = "", "", []
    for number, line in enumerate(markdown.splitlines(), start=1):
        match = FENCE.fullmatch(line.strip())
        if not fence and match:
            fence, lines = match[1], []
            blocks.append(Block(match[2].strip(), number + 1, "", between))
        elif fence and line.strip() == fence:
            blocks[-1].text = "\n".join(lines) + "\n"
            fence, between = "", ""
        elif fence:
            lines.append(line)
        else:
            between += line.strip()
    assert not fence, f"the block at line {blocks[-1].line} is never closed"
    return blocks


def blocks_in(page: Path) -> list[Block]:
    """The fenced blocks of a file."""
    return blocks_of(page.read_text(encoding="utf-8"))


def commands_of(text: str) -> list[list[str]]:
    """The words of every command of a shell block, in order, without comments."""
    commands: list[list[str]] = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        words = shlex.split(line, comments=True)
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            commands.append(words[:end])
            words = words[end + 1 :]
    return commands


def link_archives(folder: Path) -> None:
    """Link what ``$HSA_GEO_DATA`` holds of a dataset into its folder, so that it is not fetched."""
    if "HSA_GEO_DATA" not in os.environ:
        return
    raw = folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for archive in Path(os.environ["HSA_GEO_DATA"], folder.name, "raw").glob("*.*"):
        if archive.is_file() and not (raw / archive.name).exists():
            (raw / archive.name).symlink_to(archive.resolve())

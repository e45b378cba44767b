"""The pages that people read: README, the guide for contributors and docs/, with their blocks of code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from tests.conftest import REPOSITORY

LANGUAGES = {"bash", "bibtex", "console", "diff", "json", "python", "text", "yaml"}
PAGES = (
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *(REPOSITORY / folder / "README.md" for folder in ("config", "results")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
)


@dataclass(frozen=True)
class Block:
    """A fenced block of code; `page` is the path of its page in the repository."""

    page: str
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The lines of a block of commands, without comments."""
        return [line for each in self.text.splitlines() if (line := each.partition("  #")[0].strip())]


def find_blocks(path: Path, language: str | None = None) -> list[Block]:
    """The blocks of a page in their order, of one language or of all."""
    page, text = str(path.relative_to(REPOSITORY)), path.read_text()
    # Every process of pytest asks for the pages of a language, and parsing all of them takes seconds.
    if language is not None and language not in text:
        return []
    tokens = [token for token in MarkdownIt().parse(text) if token.type == "fence"]
    return [Block(page, token.info, token.content) for token in tokens if language in (None, token.info)]


def find_pages(language: str) -> list[Path]:
    """The pages that have blocks of this language."""
    return [path for path in PAGES if find_blocks(path, language)]


def page_id(path: Path) -> str:
    """The name of the test of a page."""
    return str(path.relative_to(REPOSITORY))

"""The site is built without a warning: no page is lost, no link and no anchor leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from docs.generators.results import DOCS, FEW_PHOTOGRAPHS, find_studies
from tests.conftest import REPOSITORY

ON_GITHUB = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "config/README.md", "results/README.md")


@pytest.mark.skipif(find_spec("material") is None, reason="mkdocs-material is not installed (the extra docs)")
def test_the_site_is_built(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "tutorial.html").read_text()
    # Scripts and styles lie beside the pages.
    assert not re.search(r'(?:src|href)="https?://(?!squidfunk)[^"]*\.(?:js|css|woff2?)"', page)


def find_links(path: Path) -> list[str]:
    """The targets of a page's links and images."""
    inline = [token for token in MarkdownIt("gfm-like", {"linkify": False}).parse(path.read_text()) if token.children]
    children = [child for token in inline for child in token.children or ()]
    return [str(child.attrs.get("href") or child.attrs["src"]) for child in children if child.type in WITH_TARGET]


WITH_TARGET = ("link_open", "image")


@pytest.mark.parametrize("name", ON_GITHUB)
def test_links_of_the_pages_outside_the_site(name: str) -> None:
    """External links are not fetched."""
    path = REPOSITORY / name
    targets = [target.partition("#") for target in find_links(path) if not target.startswith("https://")]
    assert [name for name, _, _ in targets if not (path.parent / name).exists()] == []
    assert [
        (name, anchor) for name, _, anchor in targets if anchor and anchor not in find_anchors(path.parent / name)
    ] == []


def find_anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_complete_cifar10_comes_first() -> None:
    assert [name for name in FEW_PHOTOGRAPHS if not (DOCS / name / "README.md").is_file()] == []
    complete = ["not-bugs-cifar10-width16", "two-pathways-cifar10-resnet9"]
    assert find_studies("B1") == [*complete, "cifar10-mini", "digits", "digits-full"]


def test_the_readme_is_short() -> None:
    lines = (REPOSITORY / "README.md").read_text().splitlines()
    assert len(lines) <= 130

"""docs/index.md lists every page of the documentation once, with a line about it; and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"
_ROW = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<target>[^)#]+)\): (?P<line>.+)$", re.MULTILINE)


def problems(docs: Path, index: str) -> list[str]:
    """Return what is wrong with *index*, the text of the page that maps the folder *docs*."""
    rows = [match.groupdict() for match in _ROW.finditer(index)]
    listed = [row["target"] for row in rows]
    # The decisions have an index of their own, which tests/project/test_docs.py checks.
    pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} - {"index.md"}
    pages = {page for page in pages if not page.startswith("adr/") or page == "adr/README.md"}
    found = [f"{page} is not listed" for page in sorted(pages - set(listed))]
    found += [f"{page} is listed twice" for page in sorted({one for one in listed if listed.count(one) > 1})]
    links = re.findall(r"\]\(([^)\s]+)\)", index)
    found += [f"{link} leads nowhere" for link in links if not _leads_somewhere(docs, index, link)]
    found += [f"{row['target']} has no sentence" for row in rows if not row["line"].endswith(".")]
    return found


def _leads_somewhere(docs: Path, index: str, link: str) -> bool:
    path, _, anchor = link.partition("#")
    page = docs / path
    if path and not page.exists():
        return False
    return not anchor or anchor in _anchors(page.read_text(encoding="utf-8") if path else index)


def _anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_index_lists_every_page_once() -> None:
    assert problems(DOCS, INDEX.read_text(encoding="utf-8")) == []


def test_the_readme_links_the_index_and_the_page_for_contributors() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](docs/index.md)" in readme
    assert "](CONTRIBUTING.md)" in readme


def test_what_is_wrong_with_an_index_is_found(tmp_path: Path) -> None:
    (tmp_path / "adr").mkdir()
    for name in ("index.md", "a.md", "b.md", "c.md", "adr/README.md", "adr/0001-x.md"):
        (tmp_path / name).write_text("# A page\n\n## A heading\n", encoding="utf-8")
    index = """# Docs

See [pages](#pages), [none](#none), [a heading](a.md#a-heading) and [no heading](a.md#missing).

## Pages

- [A](a.md): it is here.
- [A again](a.md): it is here again.
- [B](b.md): without a full stop
- [Gone](gone.md): it is not here.
- [Decisions](adr/README.md): listed by another page.
"""
    assert problems(tmp_path, index) == [
        "c.md is not listed",
        "a.md is listed twice",
        "#none leads nowhere",
        "a.md#missing leads nowhere",
        "gone.md leads nowhere",
        "b.md has no sentence",
    ]

"""Sample PDFs for the converter. `python -m systems.converter.samples FOLDER` writes them.

They are an article in two columns, an invoice, a letter with umlauts and ligatures, and any number of plain
pages.
"""

from __future__ import annotations

import sys
from pathlib import Path

from systems.converter.pdfs import Sheet, document

_ABSTRACT = """A job engine promises that nothing it has acknowledged is lost. We measure what that promise costs on two
embedded and client-server databases, and show that grouping writes pays for every flush to the disk."""

_INTRODUCTION = """Background work is where most systems lose data. A process is killed, an answer comes late, a message is
sent twice, and a file that somebody waits for is gone. The usual remedy, to try again, makes it worse when the service
that is called has only just come back."""

_LEASES = """A lease is the right to finish one job until a moment that the store alone decides. Its number grows with every
claim and never goes back, so a worker that was paused for an hour and wakes up again can change nothing."""

_GROUPS = """What arrives while one write is under way travels in the next. No timer is needed, and each caller is answered
after its own commit."""

_RESULTS = """With durability on, the embedded store completes several thousand jobs in a second on two cores. During an outage
of five minutes no attempt is burnt, and afterwards each file is converted with hardly more than one call."""

_REFERENCES = [
    "[1] J. Gray and A. Reuter. Transaction Processing: Concepts and Techniques. Morgan Kaufmann, 1993.",
    "[2] P. Helland. Life beyond Distributed Transactions: an Apostate's Opinion. CIDR, 2007.",
    "[3] M. Nygard. Release It! Design and Deploy Production-Ready Software. 2018.",
]


def article() -> bytes:
    """Return an article: two columns under a title, a running head, numbered sections and references."""
    first, second = Sheet(), Sheet()
    for number, sheet in enumerate((first, second), 1):
        sheet.write(60, 40, "Journal of Durable Work", font="serif-italic", size=8)
        sheet.write(292, 815, str(number), size=8)
    first.write(110, 90, "What It Costs to Lose No Job", font="serif-bold", size=20)
    first.write(190, 120, "Ada Lovelace, Jürgen Müller and Grace Hopper", size=11)
    left, right, width = 60, 310, 225
    y = first.flow(left, 170, width, "Abstract", font="serif-bold", size=11)
    y = first.flow(left, y, width, _ABSTRACT)
    y = first.flow(left, y, width, "1 Introduction", font="serif-bold", size=12)
    y = first.flow(left, y, width, _INTRODUCTION)
    first.flow(left, y, width, _INTRODUCTION)
    y = first.flow(right, 170, width, "2 Design", font="serif-bold", size=12)
    y = first.flow(right, y, width, "2.1 Leases", font="serif-bold", size=11)
    y = first.flow(right, y, width, _LEASES)
    y = first.flow(right, y, width, "2.2 Groups", font="serif-bold", size=11)
    first.flow(right, y, width, _GROUPS)
    y = second.flow(left, 90, width, "3 Results", font="serif-bold", size=12)
    second.flow(left, y, width, _RESULTS)
    y = second.flow(right, 90, width, "References", font="serif-bold", size=12)
    for reference in _REFERENCES:
        y = second.flow(right, y, width, reference, size=9) - 4
    return document([first, second], info={"Title": "Manuscript 7", "Author": "the editors"})


def invoice() -> bytes:
    """Return an invoice with a table: its cells must not become one line, nor its columns a sentence."""
    sheet = Sheet()
    sheet.write(60, 80, "Invoice 2026-0117", font="sans-bold", size=18)
    sheet.write(60, 105, "Holdfast Instruments GmbH, Hafenstraße 3, 20459 Hamburg", font="sans", size=9)
    columns = (60, 330, 400, 480)
    rows = [
        ("Item", "Count", "Price", "Sum"),
        ("Cleat, bronze, 150 mm", "4", "38.50 €", "154.00 €"),
        ("Rope, 12 mm, per metre", "60", "1.95 €", "117.00 €"),
        ("Shackle", "12", "6.20 €", "74.40 €"),
        ("Total", "", "", "345.40 €"),
    ]
    for nth, row in enumerate(rows):
        font = "sans-bold" if nth in (0, len(rows) - 1) else "sans"
        for x, cell in zip(columns, row, strict=True):
            if cell:
                sheet.write(x, 160 + 22 * nth, cell, font=font)
        sheet.rule(60, 166 + 22 * nth, 475)
    return document([sheet], info={"Title": "Invoice 2026-0117"})


def letter() -> bytes:
    """Return a letter with umlauts, quotes, dashes, ligatures, and characters that XML escapes."""
    sheet = Sheet()
    sheet.write(60, 90, "Köln, 3. März 2026", font="serif-italic")
    y = sheet.flow(60, 140, 420, "Sehr geehrte Frau Weiß,", size=11)
    y = sheet.flow(
        60,
        y,
        420,
        "über Ihre Anfrage haben wir uns sehr gefreut. Die ﬁnale Fassung („Größe & Maß“ – 5 < 7) liegt bei; die"
        " Überﬂutung des Büros hat uns nicht aufgehalten. Straße, Äpfel, Öl und Übung sind wieder trocken.",
        size=11,
    )
    sheet.flow(60, y, 420, "Mit freundlichen Grüßen", size=11)
    return document([sheet])


def plain(pages: int = 1, *, words: str = "Nothing that was acknowledged is lost.") -> bytes:
    """Return a PDF of *pages* pages, each with its number and *words*. Other words make a different file."""
    sheets: list[Sheet] = []
    for number in range(1, pages + 1):
        sheet = Sheet()
        sheet.write(60, 80, f"Page {number}", font="sans-bold", size=16)
        sheet.flow(60, 120, 460, f"{words} " * 8, font="sans", size=11)
        sheets.append(sheet)
    return document(sheets)


SAMPLES = {"article.pdf": article, "invoice.pdf": invoice, "letter.pdf": letter}


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m systems.converter.samples FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in SAMPLES.items():
        (folder / name).write_bytes(make())
    return 0


if __name__ == "__main__":
    sys.exit(main())

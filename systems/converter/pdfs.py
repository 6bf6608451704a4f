"""PDF files written by hand: the same bytes every time, and nothing is needed to write them.

`Sheet` is a page with text at places; `document` puts sheets into a file. For samples and tests only: it knows the fonts
that every reader has, and no more of the format than they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

A4 = (595.0, 842.0)

FONTS = {
    "serif": "Times-Roman",
    "serif-bold": "Times-Bold",
    "serif-italic": "Times-Italic",
    "sans": "Helvetica",
    "sans-bold": "Helvetica-Bold",
}
#: About how wide a letter is, as a share of the font's size: enough to know when a line is full.
_LETTER = {"serif": 0.43, "serif-bold": 0.47, "serif-italic": 0.42, "sans": 0.49, "sans-bold": 0.53}
# Two ligatures have no place in the usual encoding; here they have these.
_LIGATURES = {"ﬁ": b"\\001", "ﬂ": b"\\002"}


@dataclass(slots=True)
class Sheet:
    """One page. Places are in points from the upper left."""

    size: tuple[float, float] = A4
    content: list[bytes] = field(default_factory=list)

    def write(self, x: float, y: float, text: str, *, font: str = "serif", size: float = 10) -> None:
        place = f"BT /{font} {size:g} Tf {x:g} {self.size[1] - y:g} Td (".encode()
        self.content.append(place + _string(text) + b") Tj ET")

    def flow(
        self, x: float, y: float, width: float, text: str, *, font: str = "serif", size: float = 10
    ) -> float:
        """Write *text* in lines of *width*; the place where the next paragraph begins."""
        for line in _lines(text, width / (size * _LETTER[font])):
            self.write(x, y, line, font=font, size=size)
            y += 1.2 * size
        return y + 0.8 * size

    def rule(self, x: float, y: float, width: float) -> None:
        level = self.size[1] - y
        self.content.append(f"0.5 w {x:g} {level:g} m {x + width:g} {level:g} l S".encode())


def _lines(text: str, letters: float) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= letters:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _string(text: str) -> bytes:
    written = text.encode("cp1252", "xmlcharrefreplace") if not set(text) & set(_LIGATURES) else b""
    if not written:
        return b"".join(_LIGATURES.get(letter) or _string(letter) for letter in text)
    return written.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def document(sheets: Sequence[Sheet], *, info: dict[str, str] | None = None, catalog: str = "") -> bytes:
    """A file with these pages. *catalog* is more for its root, in the format's own words."""
    fonts = {name: number for number, name in enumerate(FONTS, 4)}
    encoding = "<< /Type /Encoding /BaseEncoding /WinAnsiEncoding /Differences [1 /fi /fl] >>"
    first = 4 + len(FONTS)
    kids = " ".join(f"{first + 2 * nth} 0 R" for nth in range(len(sheets)))
    used = " ".join(f"/{name} {number} 0 R" for name, number in fonts.items())
    facts = "".join(f" /{key} ({value})" for key, value in (info or {}).items())
    objects: list[bytes] = [
        f"<< /Type /Catalog /Pages 2 0 R {catalog} >>".encode(),
        f"<< /Type /Pages /Kids [{kids}] /Count {len(sheets)} >>".encode(),
        f"<<{facts} >>".encode("cp1252"),
    ]
    objects += [
        f"<< /Type /Font /Subtype /Type1 /BaseFont /{base} /Encoding {encoding} >>".encode()
        for base in FONTS.values()
    ]
    for nth, sheet in enumerate(sheets):
        box = f"[0 0 {sheet.size[0]:g} {sheet.size[1]:g}]"
        resources = f"<< /Font << {used} >> >>"
        at = f"<< /Type /Page /Parent 2 0 R /MediaBox {box} /Resources {resources} /Contents {first + 2 * nth + 1} 0 R >>"
        objects += [at.encode(), stream(b"\n".join(sheet.content))]
    return file_of(objects)


def stream(content: bytes, more: str = "") -> bytes:
    return f"<< /Length {len(content)} {more} >>\nstream\n".encode() + content + b"\nendstream"


def file_of(objects: Sequence[bytes], *, trailer: str = "/Info 3 0 R", header: bytes = b"%PDF-1.7") -> bytes:
    """The objects, numbered from 1, with the table that says where each begins. The first is the catalogue."""
    out = bytearray(header + b"\n%\xe2\xe3\xcf\xd3\n")
    places: list[int] = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    for place in places:
        out += f"{place:010} 00000 n \n".encode()
    out += (
        f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R {trailer} >>\nstartxref\n{start}\n%%EOF\n".encode()
    )
    return bytes(out)

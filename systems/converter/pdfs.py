"""Write small PDF files without a library. The same input always results in the same bytes.

`Sheet` is a page with text, and `document` puts sheets into a file. It is for samples and tests only: it
knows the standard fonts, and only the parts of the format that they need.
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
#: The average width of a letter, as a share of the font's size. It is good enough to break lines.
_LETTER = {"serif": 0.43, "serif-bold": 0.47, "serif-italic": 0.42, "sans": 0.49, "sans-bold": 0.53}
# The encoding has no place for these two ligatures, so `document` adds them at these codes.
_LIGATURES = {"ﬁ": b"\\001", "ﬂ": b"\\002"}


@dataclass(slots=True)
class Sheet:
    """A page. Coordinates are in points from the upper left corner."""

    size: tuple[float, float] = A4
    content: list[bytes] = field(default_factory=list)

    def write(self, x: float, y: float, text: str, *, font: str = "serif", size: float = 10) -> None:
        """Write *text* in one line, with its baseline at *y*."""
        prefix = f"BT /{font} {size:g} Tf {x:g} {self.size[1] - y:g} Td (".encode()
        self.content.append(prefix + _string(text) + b") Tj ET")

    def flow(
        self, x: float, y: float, width: float, text: str, *, font: str = "serif", size: float = 10
    ) -> float:
        """Write *text* in lines of *width*, and return the *y* of the next paragraph."""
        for line in _lines(text, width / (size * _LETTER[font])):
            self.write(x, y, line, font=font, size=size)
            y += 1.2 * size
        return y + 0.8 * size

    def rule(self, x: float, y: float, width: float) -> None:
        """Draw a horizontal line."""
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
    encoded = text.encode("cp1252", "xmlcharrefreplace") if not set(text) & set(_LIGATURES) else b""
    if not encoded:
        return b"".join(_LIGATURES.get(letter) or _string(letter) for letter in text)
    return encoded.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def document(sheets: Sequence[Sheet], *, info: dict[str, str] | None = None, catalog: str = "") -> bytes:
    """Return a PDF with these pages. *catalog* is PDF syntax to add to its root."""
    fonts = {name: number for number, name in enumerate(FONTS, 4)}
    encoding = "<< /Type /Encoding /BaseEncoding /WinAnsiEncoding /Differences [1 /fi /fl] >>"
    first = 4 + len(FONTS)
    kids = " ".join(f"{first + 2 * nth} 0 R" for nth in range(len(sheets)))
    used = " ".join(f"/{name} {number} 0 R" for name, number in fonts.items())
    entries = "".join(f" /{key} ({value})" for key, value in (info or {}).items())
    objects: list[bytes] = [
        f"<< /Type /Catalog /Pages 2 0 R {catalog} >>".encode(),
        f"<< /Type /Pages /Kids [{kids}] /Count {len(sheets)} >>".encode(),
        f"<<{entries} >>".encode("cp1252"),
    ]
    objects += [
        f"<< /Type /Font /Subtype /Type1 /BaseFont /{base} /Encoding {encoding} >>".encode()
        for base in FONTS.values()
    ]
    for nth, sheet in enumerate(sheets):
        box = f"[0 0 {sheet.size[0]:g} {sheet.size[1]:g}]"
        resources = f"<< /Font << {used} >> >>"
        contents = f"/Contents {first + 2 * nth + 1} 0 R"
        page = f"<< /Type /Page /Parent 2 0 R /MediaBox {box} /Resources {resources} {contents} >>"
        objects += [page.encode(), stream(b"\n".join(sheet.content))]
    return file_of(objects)


def stream(content: bytes, more: str = "") -> bytes:
    """Return a PDF stream object with *content*. *more* is PDF syntax to add to its dictionary."""
    return f"<< /Length {len(content)} {more} >>\nstream\n".encode() + content + b"\nendstream"


def file_of(objects: Sequence[bytes], *, trailer: str = "/Info 3 0 R", header: bytes = b"%PDF-1.7") -> bytes:
    """Return a PDF of *objects*, numbered from 1, with their cross-reference table.

    The first is the catalog.
    """
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

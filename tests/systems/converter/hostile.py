"""Files that people should not send, and do: each with the status and the code that the gateway answers with."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable
from typing import NamedTuple

import pikepdf

from systems.converter.pdfs import Sheet, document, file_of, stream
from systems.converter.samples import plain

CATALOG, NO_INFO = b"<< /Type /Catalog /Pages 2 0 R >>", b"<< >>"
FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
PAGE = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F 5 0 R >> >> /Contents 6 0 R >>"
ONE_PAGE = b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>"


#: The harmless file that all virus scanners report; in two parts, so that they do not report this one.
EICAR = rb"X5O!P%@AP[4\PZX54(P^)7CC)7}$" + b"EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"


def with_content(
    content: bytes, *, page: bytes = PAGE, pages: bytes = ONE_PAGE, catalog: bytes = CATALOG
) -> bytes:
    """A file with one page whose content is the stream object *content*."""
    return file_of([catalog, pages, NO_INFO, page, FONT, content])


def said(text: str = "harmless") -> bytes:
    return stream(f"BT /F 12 Tf 60 700 Td ({text}) Tj ET".encode())


def page_claims(count: int) -> bytes:
    return with_content(said(), pages=f"<< /Type /Pages /Kids [4 0 R] /Count {count} >>".encode())


def many_pages(count: int) -> bytes:
    kids = b" ".join([b"4 0 R"] * count)
    return with_content(said(), pages=b"<< /Type /Pages /Kids [" + kids + b"] /Count %d >>" % count)


def huge_page() -> bytes:
    return with_content(said(), page=PAGE.replace(b"595 842", b"1000000 1000000"))


def flate_bomb() -> bytes:
    """A few kilobytes that are 800 MB."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = squeeze.compress(b" " * 4_000_000) + squeeze.flush(
        zlib.Z_FULL_FLUSH
    )  # it can stand behind itself
    once = b"\x78\xda" + piece * 200 + squeeze.flush() + bytes(4)
    return with_content(stream(zlib.compress(once, 9), "/Filter [/FlateDecode /FlateDecode]"))


def endless_text() -> bytes:
    """A small file with more letters than can be read in the time there is."""
    form = b"/X Do " * 40
    objects = [CATALOG, ONE_PAGE, NO_INFO]
    objects.append(PAGE.replace(b"/Font << /F 5 0 R >>", b"/Font << /F 5 0 R >> /XObject << /X 7 0 R >>"))
    objects += [FONT, stream(form)]
    for nth in range(8, 11):
        inner = (
            f"/Type /XObject /Subtype /Form /BBox [0 0 595 842] /Resources << /XObject << /X {nth} 0 R >> >>"
        )
        objects.append(stream(form, inner))
    last = "/Type /XObject /Subtype /Form /BBox [0 0 595 842] /Resources << /Font << /F 5 0 R >> >>"
    objects.append(stream(b"BT /F 9 Tf 9 9 Td (" + b"word " * 200 + b") Tj ET", last))
    return file_of(objects)


def form_loop() -> bytes:
    objects = [CATALOG, ONE_PAGE, NO_INFO]
    objects.append(PAGE.replace(b"/Font << /F 5 0 R >>", b"/XObject << /X 7 0 R >>"))
    loop = "/Type /XObject /Subtype /Form /BBox [0 0 595 842] /Resources << /XObject << /X 7 0 R >> >>"
    objects += [FONT, stream(b"/X Do"), stream(b"/X Do /X Do", loop)]
    return file_of(objects)


def xref_loop() -> bytes:
    """The table before this one is this one."""
    data = with_content(said())
    start = data.rindex(b"xref\n0 ", 0, data.rindex(b"startxref"))
    return data.replace(b"/Root 1 0 R ", b"/Root 1 0 R /Prev %d " % start)


def page_tree_loop() -> bytes:
    return with_content(said(), pages=b"<< /Type /Pages /Kids [2 0 R] /Count 1 >>")


def unbalanced() -> bytes:
    return with_content(said(), page=b"<<" * 50_000 + PAGE)


def deep_arrays() -> bytes:
    return with_content(stream(b"[" * 1_000_000))


def encrypted(user: str = "secret") -> bytes:
    out = io.BytesIO()
    with pikepdf.open(io.BytesIO(plain())) as pdf:
        pdf.save(out, encryption=pikepdf.Encryption(owner="owner", user=user))
    return out.getvalue()


LAUGHS = b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(12))


def xmp(entities: bytes, title: bytes) -> bytes:
    return (
        b"<!DOCTYPE x:xmpmeta [" + entities + b']><x:xmpmeta xmlns:x="adobe:ns:meta/">'
        b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        b'<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title><rdf:Alt><rdf:li>'
        + title
        + b"</rdf:li></rdf:Alt></dc:title></rdf:Description></rdf:RDF></x:xmpmeta>"
    )


def hostile_xml(where: str, packet: bytes = b"") -> bytes:
    """An XML packet, by default one with entities that grow without end, as the XMP of a file or as its XFA form."""
    packet = packet or xmp(b'<!ENTITY a "ha">' + LAUGHS, b"&m;")
    more = b"/Metadata 7 0 R" if where == "xmp" else b"/AcroForm << /XFA 7 0 R >>"
    objects = [CATALOG.replace(b" >>", b" " + more + b" >>"), ONE_PAGE, NO_INFO, PAGE, FONT, said()]
    return file_of([*objects, stream(packet, "/Type /Metadata /Subtype /XML")])


def actions() -> bytes:
    catalog = (
        "/OpenAction << /S /JavaScript /JS (app.launchURL\\('http://127.0.0.1:9/'\\);) >>"
        " /AA << /WC << /S /Launch /F (/bin/sh) >> /DC << /S /URI /URI (http://127.0.0.1:9/) >> >> /Names << /EmbeddedFiles << /Names [(../../etc/cron.d/x)"
        " << /Type /Filespec /F (../../etc/cron.d/x) /UF (../../etc/cron.d/x) >>] >> >>"
    )
    sheet = Sheet()
    sheet.write(60, 100, "harmless")
    return document([sheet], catalog=catalog)


def attached(content: bytes) -> bytes:
    """An honest page, and a file that comes with it."""
    out = io.BytesIO()
    with pikepdf.open(io.BytesIO(plain())) as pdf:
        pdf.attachments["attached.zip"] = content
        pdf.save(out)
    return out.getvalue()


def zip_bomb() -> bytes:
    """A few kilobytes that are a gigabyte for whoever opens them twice."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("0", bytes(10_000_000))
    inner = out.getvalue()
    with zipfile.ZipFile(out := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as packed:
        for nth in range(100):
            packed.writestr(f"{nth}.zip", inner)
    return out.getvalue()


def archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        packed.writestr("../../x", "x" * 4000)
    return out.getvalue()


def picture_only() -> bytes:
    return with_content(stream(b"q 200 0 0 200 60 600 cm BI /W 1 /H 1 /BPC 8 /CS /G ID \xff EI Q"))


class Hostile(NamedTuple):
    make: Callable[[], bytes]
    status: int
    code: str = ""


#: Name → file. Those with 200 are read like any other: what is hostile in them is never looked at.
FILES: dict[str, Hostile] = {
    "no bytes": Hostile(lambda: b"", 400, "EMPTY"),
    "not a PDF": Hostile(lambda: b"MZ\x90\x00" + b"x" * 5000, 415, "NOT_PDF"),
    "a web page": Hostile(lambda: b"<html><script>alert(1)</script></html>", 415, "NOT_PDF"),
    "an archive": Hostile(archive, 415, "NOT_PDF"),
    "a web page and a PDF": Hostile(lambda: b"<html><!--\n" + plain(), 415, "NOT_PDF"),
    "an archive and a PDF": Hostile(lambda: archive() + plain(), 415, "NOT_PDF"),
    "a PDF and an archive": Hostile(lambda: plain() + archive(), 422, "CUT_OFF"),
    "the head alone": Hostile(lambda: b"%PDF-1.7\n", 422, "CUT_OFF"),
    "head and end": Hostile(lambda: b"%PDF-1.7\n%%EOF", 422, "PARSE_ERROR"),
    "cut off": Hostile(lambda: plain(20)[:9000], 422, "CUT_OFF"),
    "noise": Hostile(lambda: b"%PDF-1.7\n" + bytes(range(256)) * 400 + b"\n%%EOF", 422, "PARSE_ERROR"),
    "encrypted": Hostile(encrypted, 422, "ENCRYPTED"),
    "no pages": Hostile(lambda: document([]), 422),
    "a million pages claimed": Hostile(lambda: page_claims(1_000_000), 422, "TOO_MANY_PAGES"),
    "five pages claimed": Hostile(lambda: page_claims(5), 422, "PARSE_ERROR"),
    "a hundred thousand pages": Hostile(lambda: many_pages(100_000), 422, "TOO_MANY_PAGES"),
    "a page of a million points": Hostile(huge_page, 422, "PAGE_TOO_LARGE"),
    "a picture only": Hostile(picture_only, 422, "NO_TEXT"),
    "a Flate bomb": Hostile(flate_bomb, 422),
    "a form that calls itself": Hostile(form_loop, 422, "TOO_COMPLEX"),
    "a table that is before itself": Hostile(xref_loop, 200),
    "a page tree that is its own child": Hostile(page_tree_loop, 422),
    "unbalanced brackets": Hostile(unbalanced, 200),
    "a million open arrays": Hostile(deep_arrays, 422, "NO_TEXT"),
    "entities in the XMP": Hostile(lambda: hostile_xml("xmp"), 200),
    "entities in the XFA": Hostile(lambda: hostile_xml("xfa"), 200),
    "scripts, launches, addresses and paths": Hostile(actions, 200),
    "an archive that bursts, attached": Hostile(lambda: attached(zip_bomb()), 200),
    "what virus scanners look for": Hostile(lambda: EICAR, 415, "NOT_PDF"),
    "the same, attached": Hostile(lambda: attached(EICAR), 200),
}

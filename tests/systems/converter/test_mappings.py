"""The three mappings, on the samples and on pages that Hypothesis makes up."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from systems.converter.mapping.convert import convert
from systems.converter.mapping.names import MAPPINGS
from systems.converter.pdfs import Sheet, document
from systems.converter.samples import article, invoice, letter, plain
from tests.systems.converter.gateways import ROOT

SCHEMAS = ROOT / "systems/converter/mapping/schemas"
TEXT = "{urn:holdfast:converter:text:1}"
ALTO = "{http://www.loc.gov/standards/alto/ns-v4#}"
SAMPLES = {"article": article, "invoice": invoice, "letter": letter, "plain": plain}


def xml_of(pdf: bytes, mapping: str) -> etree._Element:
    out = io.BytesIO()
    convert(pdf, mapping, out)
    return etree.fromstring(out.getvalue())


def assert_valid(root: etree._Element, mapping: str) -> None:
    schema = etree.RelaxNG(etree.parse(SCHEMAS / f"{mapping}.rng"))
    assert schema.validate(root), schema.error_log


def words_of(root: etree._Element) -> list[str]:
    return [word.text for word in root.iter(TEXT + "word")]


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_written_is_what_the_schema_says(name: str, mapping: str) -> None:  # C5
    assert_valid(xml_of(SAMPLES[name](), mapping), mapping)


def test_another_process_with_other_hashes_writes_the_same_bytes(tmp_path: Path) -> None:  # C5
    (tmp_path / "a.pdf").write_bytes(article())
    program = (
        "import sys; from pathlib import Path; from systems.converter.mapping.convert import convert\n"
        "for mapping in ('text', 'jats', 'alto'): convert(Path(sys.argv[1]).read_bytes(), mapping, sys.stdout.buffer)"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "a.pdf")],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert len(said[0]) > 10_000


def test_an_article_is_told_by_how_it_looks() -> None:  # C5
    root = xml_of(article(), "jats")
    assert root.findtext(".//article-title") == "What It Costs to Lose No Job"
    authors = [name.text for name in root.iterfind(".//contrib/string-name")]
    assert authors == ["Ada Lovelace", "Jürgen Müller", "Grace Hopper"]
    [abstract] = root.iterfind(".//abstract/p")
    assert abstract.text.startswith("A job engine promises")
    assert abstract.text.endswith("every flush to the disk.")
    assert [sec.findtext("title") for sec in root.iterfind("body/sec")] == [
        "1 Introduction",
        "2 Design",
        "3 Results",
    ]
    assert [sec.findtext("title") for sec in root.iterfind("body/sec/sec")] == ["2.1 Leases", "2.2 Groups"]
    assert [ref.findtext("label") for ref in root.iterfind("back/ref-list/ref")] == ["[1]", "[2]", "[3]"]
    assert "Journal of Durable Work" not in "".join(root.itertext())  # it stands at the head of each page


def test_columns_are_read_one_after_the_other() -> None:
    words = " ".join(words_of(xml_of(article(), "text")))
    assert words.index("Background work is where") < words.index("2 Design") < words.index("3 Results")
    assert "Abstract 2 Design" not in words


def test_cells_of_a_row_are_lines_of_their_own() -> None:
    lines = [" ".join(word.text for word in line) for line in xml_of(invoice(), "text").iter(TEXT + "line")]
    assert "Rope, 12 mm, per metre" in lines
    assert {"60", "1.95 €", "117.00 €"} <= set(lines)


def test_umlauts_quotes_and_ligatures_come_through() -> None:
    words = " ".join(words_of(xml_of(letter(), "text")))
    for part in ("Köln, 3. März", "Frau Weiß,", "finale", "(„Größe & Maß“ – 5 < 7)", "Überflutung"):
        assert part in words


def test_words_stand_where_they_were_written() -> None:
    sheet = Sheet()
    sheet.write(100, 200, "here", size=20)
    [word] = xml_of(document([sheet]), "text").iter(TEXT + "word")
    assert float(word.get("x")) == pytest.approx(100, abs=1)
    bottom = float(word.get("y")) + float(word.get("height"))
    assert float(word.get("y")) < 200 <= bottom + 1
    [string] = xml_of(document([sheet]), "alto").iter(ALTO + "String")
    assert string.get("HPOS") == word.get("x")
    assert string.get("CONTENT") == "here"


@pytest.mark.parametrize(
    ("turned", "place"),
    [(90, (642, 100)), (180, (495, 642)), (270, (200, 495))],
    ids=["right", "over", "left"],
)
def test_a_turned_page_is_measured_as_it_is_shown(turned: int, place: tuple[float, float]) -> None:
    sheet = Sheet()
    sheet.write(100, 200, "x", size=1)
    pdf = document([sheet]).replace(b"/MediaBox", b"/Rotate %d /MediaBox" % turned)
    root = xml_of(pdf, "text")
    [word] = root.iter(TEXT + "word")
    assert (float(word.get("x")), float(word.get("y"))) == pytest.approx(place, abs=2)
    [page] = root.iter(TEXT + "page")
    assert (page.get("width") == "842") == (turned != 180)


def test_fonts_are_named_with_their_size() -> None:
    fonts = [dict(font.attrib) for font in xml_of(invoice(), "text").iter(TEXT + "font")]
    assert {"id": "p1f1", "name": "Helvetica-Bold", "size": "18", "bold": "true"} in fonts


def test_a_word_broken_at_the_end_of_a_line_is_put_together() -> None:
    sheet = Sheet()
    sheet.write(60, 100, "Nothing that was acknow-")
    sheet.write(60, 112, "ledged is lost.")
    [paragraph] = xml_of(document([sheet]), "jats").iterfind("body/p")
    assert paragraph.text == "Nothing that was acknowledged is lost."


def test_without_a_visible_title_that_of_the_file_is_taken() -> None:
    sheet = Sheet()
    sheet.write(60, 100, "Just a line of text.")
    root = xml_of(document([sheet], info={"Title": "From the file", "Author": "Ann Lee; Bo Ek"}), "jats")
    assert root.findtext(".//article-title") == "From the file"
    assert [name.text for name in root.iterfind(".//string-name")] == ["Ann Lee", "Bo Ek"]


LETTERS = st.characters(codec="cp1252", exclude_categories=["Cc", "Cf", "Zs"])
PLACES = st.tuples(
    st.floats(-50, 650), st.floats(-50, 900), st.text(LETTERS, min_size=1, max_size=12), st.integers(1, 60)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(PLACES, min_size=1, max_size=25), st.sampled_from(MAPPINGS))
def test_whatever_is_on_a_page_the_xml_is_valid(
    places: list[tuple[float, float, str, int]], mapping: str
) -> None:  # C5
    sheet = Sheet()
    sheet.write(60, 60, "anchor")
    for x, y, text, size in places:
        sheet.write(round(x, 2), round(y, 2), text, size=size)
    root = xml_of(document([sheet]), mapping)
    assert_valid(root, mapping)
    assert "anchor" in etree.tostring(root, encoding="unicode")


def _same(make: Callable[[], bytes]) -> bool:
    return make() == make()


def test_samples_are_the_same_bytes_each_time() -> None:
    assert all(_same(make) for make in SAMPLES.values())

"""Draws the page's picture as SVG: bars of the drain rates relative to the floor."""

from __future__ import annotations

from html import escape
from pathlib import Path
from statistics import median

from benchmarks.report import Cells, Results, ratios
from benchmarks.subjects import FLOOR, SUBJECTS, Store

PLOT = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "speed.svg"
NAMES: dict[Store, str] = {"postgres": "PostgreSQL", "sqlite": "SQLite"}
PANELS = (("b2", "Drain"), ("b5", "Drain, every job fails once"))
WIDTH, LEFT, ROW, BAR, GAP = 720, 130, 24, 14, 36
FULL = WIDTH - LEFT - 70  #: the length of the floor's bar

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f; }
  .title { font-weight: 600; font-size: 14px; }
  .axis { stroke: #8c959f; stroke-dasharray: 3 3; }
  .track { fill: #8c959f; fill-opacity: .12; }
  .holdfast { fill: #0a7c66; } .peer { fill: #8c959f; }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .holdfast { fill: #2fbf9f; } }
"""


def render(results: Results) -> str:
    """Return the SVG for these results."""
    cells = Cells(results)
    parts: list[str] = []
    y = 8
    for scenario, title in PANELS:
        for store in NAMES:
            bars = shares(cells, store, scenario)
            if not bars:
                continue
            y += 18
            heading = f"{title}: {NAMES[store]}, relative to a hand-written loop (= 1)"
            parts.append(f'<text class="title" x="8" y="{y}">{escape(heading)}</text>')
            y += 12
            top = y
            for name, share in bars:
                parts += _bar(name, share, y)
                y += ROW
            parts.append(
                f'<line class="axis" x1="{LEFT + FULL}" x2="{LEFT + FULL}" y1="{top}" y2="{y - ROW + BAR}"/>'
            )
            y += GAP - ROW
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img">\n'
        f"<title>Drain rates relative to the floor</title>\n<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def shares(cells: Cells, store: Store, scenario: str) -> list[tuple[str, float]]:
    """Return each queue on this store with its share of the floor's rate, the greatest first."""
    floor = cells.values(FLOOR[store], scenario)
    found = [
        (subject.name, median(values))
        for subject in SUBJECTS
        if subject.store == store
        and subject.role != "floor"
        and (values := ratios(cells.values(subject.name, scenario), floor))
    ]
    return sorted(found, key=lambda bar: -bar[1])


def _bar(name: str, share: float, y: int) -> list[str]:
    ours = name.startswith("holdfast")
    label = "Holdfast" if ours else name
    length = max(1.0, min(share, 1.1) * FULL)
    return [
        f'<text x="{LEFT - 10}" y="{y + BAR - 3}" text-anchor="end">{escape(label)}</text>',
        f'<rect class="track" x="{LEFT}" y="{y}" width="{FULL}" height="{BAR}" rx="2"/>',
        f'<rect class="{"holdfast" if ours else "peer"}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>',
        f'<text x="{LEFT + length + 6:.1f}" y="{y + BAR - 3}">{share:.2g}</text>',
    ]

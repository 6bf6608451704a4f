"""Draws the pictures of the page as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tools.evidence.records import Torture

WIDTH, LEFT, RIGHT, LINE = 760, 340, 60, 22
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f; }
  .title { font-weight: 600; font-size: 14px; }
  .small { font-size: 11px; fill: #656d76; }
  .bar { fill: #0a7c66; fill-opacity: .75; }
  .curve { fill: none; stroke: #0a7c66; stroke-width: 1.8; }
  .second { stroke: #8250df; }
  .third { stroke: #bf8700; }
  .ground { stroke: #8c959f; stroke-opacity: .5; }
  .lease { stroke: #d1242f; stroke-dasharray: 4 3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #8d96a0; } .curve { stroke: #2fbf9f; } .second { stroke: #b392f0; }
    .third { stroke: #d4a72c; }
  }
"""


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img"'
        f' aria-label="{escape(title)}">\n<style>{STYLE}</style>\n'
        f'<text class="title" x="8" y="20">{escape(title)}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def bars(title: str, values: Sequence[tuple[str, int]]) -> str:
    """Draw a bar for each value.

    The lengths are logarithmic, because the values range from ten to tens of thousands.
    """
    longest = max(len(f"{number}") for _, number in values)
    max_length, parts, y = WIDTH - LEFT - RIGHT, [], 34
    for name, number in values:
        length = max_length * _logarithm(number) / longest
        parts.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="bar" x="{LEFT}" y="{y}" width="{length:.1f}" height="15"/>')
        parts.append(f'<text class="small" x="{LEFT + length + 5:.1f}" y="{y + 12}">{number:,}</text>')
        y += LINE
    parts.append(f'<text class="small" x="{LEFT}" y="{y + 10}">lengths are logarithms</text>')
    return _svg(y + 20, title, parts)


def _logarithm(number: int) -> float:
    """Return the number of digits minus one, plus the fraction of the way to the next power of ten."""
    digits = len(f"{number}") if number else 0
    return 0.0 if not number else digits - 1 + (number / 10 ** (digits - 1) - 1) / 9


def curves(title: str, tortures: Sequence[Torture]) -> str:
    """Draw which share of the killed workers' jobs ran again within how many seconds."""
    left, width, top, height = 60, WIDTH - 80, 40, 190
    lease = max(run.lease_seconds for run in tortures)
    end = max([lease + 5, *(max(run.again, default=0) for run in tortures)])

    def at(seconds: float) -> float:
        return left + width * seconds / end

    baseline = top + height
    parts = [f'<line class="ground" x1="{left}" y1="{baseline}" x2="{left + width}" y2="{baseline}"/>']
    parts += [
        f'<text class="small" x="{at(second):.1f}" y="{baseline + 15}" text-anchor="middle">{second} s</text>'
        for second in range(0, int(end) + 1, max(1, int(end) // 10))
    ]
    parts += [
        f'<text class="small" x="{left - 8}" y="{baseline - height * share / 100 + 4:.1f}" text-anchor="end">{share} %</text>'
        for share in (0, 50, 100)
    ]
    for name, second in (("lease", lease), ("lease + 5 s", lease + 5)):
        parts.append(
            f'<line class="lease" x1="{at(second):.1f}" y1="{top}" x2="{at(second):.1f}" y2="{top + height}"/>'
        )
        parts.append(
            f'<text class="small" x="{at(second):.1f}" y="{top - 4}" text-anchor="end">{name}</text>'
        )
    for index, run in enumerate(tortures):
        ordered, points = sorted(run.again), [f"{left},{top + height}"]
        for number, seconds in enumerate(ordered, 1):
            points.append(f"{at(seconds):.1f},{top + height * (1 - number / len(ordered)):.1f}")
        kind = ("curve", "curve second", "curve third")[index]
        y = top + height - 18 * (len(tortures) - index) - 4
        parts.append(f'<polyline class="{kind}" points="{" ".join(points)}"/>')
        parts.append(
            f'<line class="{kind}" x1="{left + width - 150}" y1="{y}" x2="{left + width - 125}" y2="{y}"/>'
        )
        parts.append(f'<text x="{left + width - 118}" y="{y + 4}">{escape(run.store)}</text>')
    return _svg(top + height + 28, title, parts)

"""Draw simulations as SVG: one strip per policy, with the time of the trouble shaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from holdfast.simulate.figures import Figures
from holdfast.simulate.scenarios import Scenario

WIDTH, LEFT, RIGHT, STRIP, GAP, TITLE = 760, 210, 12, 46, 12, 34
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f; }
  .title { font-weight: 600; font-size: 14px; }
  .small { font-size: 11px; fill: #656d76; }
  .trouble { fill: #d1242f; fill-opacity: .10; }
  .ground { stroke: #8c959f; stroke-opacity: .5; }
  .calls { fill: #8c959f; fill-opacity: .45; }
  .done { fill: none; stroke: #0a7c66; stroke-width: 1.6; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #8d96a0; } .done { stroke: #2fbf9f; }
  }
"""


def draw(results: Sequence[Figures], scenarios: Mapping[str, Scenario]) -> str:
    """Return an SVG with calls (grey) and finished jobs (line) per second, grouped by scenario."""
    parts: list[str] = []
    y = 6
    for name in dict.fromkeys(result.scenario for result in results):
        scenario = scenarios[name]
        strips = [result for result in results if result.scenario == name]
        top = max(max((*result.calls_per_bin, *result.done_per_bin)) for result in strips) or 1
        y += 18
        parts.append(f'<text class="title" x="8" y="{y}">{escape(scenario.about)}</text>')
        y += TITLE - 18
        for result in strips:
            parts += _strip(result, scenario, y, top)
            y += STRIP + GAP
        y += 8
        parts.append(_axis(scenario, y))
        y += 14
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img">\n'
        "<title>Calls a second (grey) and jobs finished a second (line)</title>\n"
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def _strip(result: Figures, scenario: Scenario, y: int, top: int) -> list[str]:
    floor = y + STRIP
    calls = _points(result.calls_per_bin, floor, top)
    left, right = _x(scenario.begins, scenario), _x(scenario.ends, scenario)
    per_job = "–" if result.calls_per_job is None else f"{result.calls_per_job:.2f}"
    return [
        f'<text x="8" y="{y + 20}">{escape(result.policy)}</text>',
        f'<text class="small" x="8" y="{y + 36}">{result.share_done:.0%} done, {per_job} calls a job</text>',
        f'<rect class="trouble" x="{left:.0f}" y="{y}" width="{right - left:.0f}" height="{STRIP}"/>',
        f'<polygon class="calls" points="{LEFT},{floor} {calls} {WIDTH - RIGHT},{floor}"/>',
        f'<polyline class="done" points="{_points(result.done_per_bin, floor, top)}"/>',
        f'<line class="ground" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>',
    ]


def _points(bins: Sequence[int], floor: int, top: int) -> str:
    step = (WIDTH - LEFT - RIGHT) / max(1, len(bins) - 1)
    return " ".join(
        f"{LEFT + place * step:.0f},{floor - count / top * STRIP:.1f}" for place, count in enumerate(bins)
    )


def _x(second: float, scenario: Scenario) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * second / scenario.seconds


def _axis(scenario: Scenario, y: int) -> str:
    step = 300 if scenario.seconds > 600 else 60
    marks = range(0, int(scenario.seconds) + 1, step)
    return "".join(
        f'<text class="small" x="{_x(second, scenario):.0f}" y="{y}" text-anchor="{"end" if second >= scenario.seconds else "middle"}">{second} s</text>'
        for second in marks
    )

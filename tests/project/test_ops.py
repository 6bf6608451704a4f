"""What operators are given: dashboards and alerts name metrics that exist, and every command of the runbook is a real one."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from typer.main import get_command

from holdfast import Holdfast
from holdfast.cli.loading import _find
from holdfast.metrics.names import FAMILIES
from holdfast.server import api
from holdfast.server.assembly import table

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "ops/grafana/holdfast.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((ROOT / "ops/prometheus/alerts.yml").read_text(encoding="utf-8"))
RUNBOOK = (ROOT / "docs/how-to/runbook.md").read_text(encoding="utf-8")
PAGES = ("runbook", "troubleshooting", "monitor", "deploy")

PREFIX = Holdfast("memory://").runtime.settings.metrics_prefix

#: Words of PromQL that are no metrics.
LANGUAGE = set(
    "sum max count rate increase histogram_quantile absent vector by on unless and or offset".split()  # noqa: SIM905
)
_SELECTOR = re.compile(r"([a-z_]+)\{([^}]*)\}")
_BY = re.compile(r"\b(?:by|on) \(([^)]*)\)")
#: Those of the systems, which have commands of other kinds, too, and a variable of their own for the database.
SYSTEM_PAGES = ("converter-runbook", "reports-runbook", "grading-runbook", "troubleshoot-screenshots")


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression by its title, without the prefix of the metrics' names."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace(PREFIX, "")
    for rule in ALERTS["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"].replace(PREFIX, "")


EXPRESSIONS = list(expressions())


def metrics_in(expression: str) -> set[str]:
    """The families that an expression asks for. Whatever is neither language nor label must be one."""
    bare = re.sub(r"\[[^\]]*\]|\{[^}]*\}|\"[^\"]*\"", " ", _BY.sub(" ", expression))
    found = set()
    for word in re.findall(r"[a-z][a-z_]+", bare):
        if word in LANGUAGE:
            continue
        base = re.sub(r"_(bucket|sum|count)$", "", word)
        found.add(base if FAMILIES.get(base, ("",))[0] == "histogram" else word)
    return found


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS, ids=[title for title, _ in EXPRESSIONS])
def test_an_expression_asks_for_metrics_and_labels_that_there_are(title: str, expression: str) -> None:  # E62
    asked = metrics_in(expression)
    assert asked
    assert asked <= FAMILIES.keys()
    known = {label for name in asked for label in FAMILIES[name].labels} | {"le"}
    grouped = {label.strip() for labels in _BY.findall(expression) for label in labels.split(",")}
    assert grouped <= known
    for name, selector in _SELECTOR.findall(expression):
        labels = set(re.findall(r"([a-z_]+)(?:=|!)", selector))
        assert labels <= set(FAMILIES[re.sub(r"_(bucket|sum|count)$", "", name)].labels)


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS, ids=[title for title, _ in EXPRESSIONS])
def test_counters_are_added_up_and_gauges_are_not(title: str, expression: str) -> None:  # E62
    for name in metrics_in(expression):
        shared = FAMILIES[name].kind == "gauge" or name == "breaker_open_seconds_total"
        inside = re.search(rf"(sum|max)(?: by \([^)]*\))? ?\((?:rate|increase)?\(?{name}", expression)
        if "absent" not in expression and "histogram_quantile" not in expression:
            assert inside is not None, f"{name} is not put together over processes"
            assert inside[1] == ("max" if shared else "sum")


def test_the_dashboard_shows_every_metric_of_the_promise() -> None:  # E62
    shown = {
        name
        for panel in DASHBOARD["panels"]
        for t in panel.get("targets", ())
        for name in metrics_in(t["expr"].replace(PREFIX, ""))
    }
    assert shown == FAMILIES.keys()


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_alert_leads_to_a_part_of_the_runbook_that_names_it() -> None:
    parts = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", RUNBOOK, re.MULTILINE | re.DOTALL))
    anchors = {
        re.sub(r"[^a-z0-9_-]", "", title.lower().replace(" ", "-")): text for title, text in parts.items()
    }
    for rule in ALERTS["groups"][0]["rules"]:
        assert rule["annotations"]["runbook"] in anchors, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")
    named = set(re.findall(r"Holdfast[A-Z]\w+", RUNBOOK))
    assert named <= {rule["alert"] for rule in ALERTS["groups"][0]["rules"]}


@pytest.mark.parametrize("file", ["prometheus/alerts.yml", "grafana/holdfast.json"])
def test_every_metric_has_the_default_prefix(file: str) -> None:  # E62
    text = (ROOT / "ops" / file).read_text(encoding="utf-8")
    bare = re.findall(rf"(?<![A-Za-z_])(?:{'|'.join(FAMILIES)})(?![A-Za-z]|_seconds)", text)
    assert bare == []


def test_the_reference_names_every_metric_with_its_kind_and_labels() -> None:  # E62
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    for name, family in FAMILIES.items():
        labels = ", ".join(f"`{label}`" for label in family.labels) or "–"
        assert f"| `{PREFIX}{name}` | {family.kind} | {labels} | {family.help} |" in page


def commands() -> Iterator[Any]:
    for page in (*PAGES, *SYSTEM_PAGES):
        text = (ROOT / f"docs/how-to/{page}.md").read_text(encoding="utf-8")
        found = re.findall(r"^\$ (.+)$", text, re.MULTILINE)
        found += re.findall(r"`((?:holdfast|curl) [^`]+)`", text.replace("\n", " "))
        if page in SYSTEM_PAGES:
            found = [line for line in found if line.startswith("holdfast ")]
        for line in dict.fromkeys(found):
            yield pytest.param(line, id=f"{page}: {line[:60]}")


@pytest.mark.parametrize("line", list(commands()))
def test_a_command_of_these_pages_is_a_real_one(line: str) -> None:
    words = shlex.split(line)
    match words[0]:
        case "holdfast":
            _parse(words[1], words[2:])
        case "curl":
            _ask(words)
        case other:
            assert other in ("df", "sqlite3", "pip")


@pytest.mark.parametrize("page", SYSTEM_PAGES)
def test_the_commands_of_a_systems_page_find_its_database(page: str) -> None:
    text = (ROOT / f"docs/how-to/{page}.md").read_text(encoding="utf-8")
    assert re.search(r"^(\$ )?export .*HOLDFAST_DATABASE_URL=\$\{?DATABASE_URL", text, re.MULTILINE)


def _parse(name: str, args: list[str]) -> None:
    """As far as the command's own parser goes, and not a step further: an unknown option raises."""
    found = _find(name)
    if inspect.isfunction(found):  # of a system, and tested there
        return
    command: Any = get_command(found)
    while hasattr(command, "commands") and args and args[0] in command.commands:
        command, args = command.commands[args[0]], args[1:]
    if not args:  # only named, not quoted in full
        return
    assert args[0].startswith("-") or not hasattr(command, "commands"), f"{name} has no command {args[0]}"
    if name == "worker" and args[0].startswith("--"):
        args = ["shop:app", *args]
    command.make_context(name, list(args))


def _ask(words: list[str]) -> None:
    method = words[words.index("-X") + 1] if "-X" in words else "GET"
    path = "/" + words[-1].removeprefix("http://").partition("/")[2]
    routes = {
        (method, route.path) for route in table(api(Holdfast("memory://"))) for method in route.methods or ()
    }
    assert (method, path) in routes


def test_the_files_of_the_page_about_deploying_can_be_read_and_start_real_commands() -> None:  # E49
    page = (ROOT / "docs/how-to/deploy.md").read_text(encoding="utf-8")
    files = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    started = [words for text in files for document in yaml.safe_load_all(text) for words in _lists(document)]
    started += [json.loads(line) for line in re.findall(r"^CMD (\[.*\])$", page, re.MULTILINE)]
    started += [line.split("/")[-1].split() for line in re.findall(r"^ExecStart=(.*)$", page, re.MULTILINE)]
    commands = [words for words in started if words[0] == "holdfast"]
    assert len(commands) == 5
    for _, command, *rest in commands:
        _parse(command, rest)


def _lists(found: Any) -> Iterator[list[str]]:
    """Every list of words in it."""
    if isinstance(found, list) and found and all(isinstance(one, str) for one in found):
        yield found
    for inner in found.values() if isinstance(found, dict) else found if isinstance(found, list) else ():
        yield from _lists(inner)

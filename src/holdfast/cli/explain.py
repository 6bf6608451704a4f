"""`holdfast explain`: why a job is not running, and when it is expected to."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.apps import ask
from holdfast.cli.options import PLAIN, AppOption, JsonOption, UrlOption
from holdfast.cli.views import print_json

explain = typer.Typer(**PLAIN)


@explain.command()
def explain_job(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    app: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Why a job is not running, in one sentence. With --app its limits, windows and gates are known, too."""
    found = ask(app, url, lambda app: app.explain(job_id))
    if as_json:
        print_json(
            {
                "sentence": found.sentence,
                "reason": found.reason,
                "expected_at": found.expected_at,
                "facts": found.facts,
            }
        )
        return
    from holdfast.cli.tables import heading, show_facts, show_lines, show_table

    show_lines([found.sentence], empty="")
    others = [wait for wait in found.facts.get("waits", ()) if wait["reason"] != found.reason]
    if others:
        heading("Besides")
        show_table(
            ["reason", "until", "what"], [(w["reason"], w["until"], w["text"]) for w in others], empty=""
        )
    heading("Facts")
    show_facts({name: value for name, value in found.facts.items() if name not in ("now", "waits")})

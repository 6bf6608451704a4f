"""`holdfast explain`: explain why a job is not running, and when it is expected to run."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.command import Cli, command
from holdfast.cli.options import PLAIN
from holdfast.cli.views import print_json

explain = typer.Typer(**PLAIN)


@command(explain)
def explain_job(job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")], cli: Cli) -> None:
    """Explain in one sentence why a job is not running. With --app this includes limits, windows and gates."""
    found = cli.ask(lambda app: app.jobs.explain(job_id))
    if cli.as_json:
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

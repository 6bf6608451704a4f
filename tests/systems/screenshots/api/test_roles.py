"""Who may do what: every route of the site × every kind of caller, credits among them. A new route must be named here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fastapi.routing import APIRoute

from systems.screenshots.web.site import make_site
from tests.systems.screenshots.api.world import ADMIN, PAGE, SHOTS, World

pytestmark = pytest.mark.anyio

#: Of ann's screenshot. Not hers: bob, an organization that does not pay for her, nobody.
OWN = {
    f"GET {SHOTS}/{{job_id}}",
    f"GET {SHOTS}/{{job_id}}/image",
    f"POST {SHOTS}/{{job_id}}/retry",
    f"GET {SHOTS}/{{job_id}}/audit",
}
#: Each caller's own.
EACH = {f"POST {SHOTS}", f"GET {SHOTS}", "GET /api/v1/credits"}
OPERATORS = {
    f"GET {ADMIN}/analytics",
    f"GET {ADMIN}/hosts",
    f"GET {ADMIN}/retry-scheduler",
    f"GET {ADMIN}/sla/breaches",
    f"GET {ADMIN}/sla/report",
}
#: Of the engine, which is mounted beside it: the tasks of this system are closed there to owners.
CLOSED = {"POST /api/v1/jobs", "POST /api/v1/jobs/batch"}


async def test_every_route_answers_each_caller_as_its_kind_may(
    make_world: Callable[..., World],
) -> None:  # S3 E66
    async with make_world().open(works=False) as world:
        site = make_site(world.screenshots)
        routes = [route for route in site.routes if isinstance(route, APIRoute)]
        names = {f"{min(route.methods or ())} {route.path}" for route in routes}
        assert names == OWN | EACH | OPERATORS
        job_id = await world.shot("ann")
        events = len(await world.app.events.list(job_id=job_id))

        async def status(who: str, name: str) -> int:
            method, path = name.replace("{job_id}", job_id).split()
            body = {"url": PAGE} if name == f"POST {SHOTS}" else {} if method == "POST" else None
            answer = await world.ask(who, method, path, body)
            if answer.status_code == 403:
                assert "user:7" not in answer.text
            return answer.status_code

        world.keys["made-up"] = "hf_made-up"
        for name in names:
            for who in ("nobody", "made-up"):
                assert await status(who, name) == 401, (who, name)
        for name in OWN:
            for who in ("bob", "acme"):
                assert await status(who, name) == 403, (who, name)
        for name in OPERATORS:
            assert [await status(who, name) for who in ("ann", "bob", "acme")] == [403] * 3, name
            assert await status("operator", name) == await status("viewer", name) == 200, name
        assert await status("viewer", f"POST {SHOTS}") == 403
        assert await status("viewer", f"POST {SHOTS}/{{job_id}}/retry") == 403
        for name in CLOSED:
            assert await status("ann", name) >= 400, name
        assert len(await world.app.events.list(job_id=job_id)) == events  # none of it has changed ann's job
        assert await world.balance("user:7") == (99, 1, 0)
        for who in ("ann", "bob"):
            assert await status(who, "GET /api/v1/credits") == 200
        mine = await world.ask("bob", "GET", "/api/v1/credits")
        assert mine.json()["availableCredits"] == 100  # bob's own account, not ann's

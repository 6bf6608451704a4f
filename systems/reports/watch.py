"""The folder watch: every new document becomes a report, once, however often and by however many it is looked for.

The id of the job is made of the document's address and version, so a look that was cut short does no harm: the next enqueues
the same job. What was seen is also written down, because jobs are forgotten one day and documents may stay.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

from systems.reports.content import EXTENSIONS
from systems.reports.documents import Listed, Place
from systems.reports.records import Records

_NAMES = uuid.UUID("5b0c1a52-3c9b-5f0e-9d0b-6f7c1d2e8a44")

Enqueue = Callable[[str, str], Awaitable[None]]  # (id of the job, address of the document)


def job_id_of(address: str, version: str) -> str:
    return str(uuid.uuid5(_NAMES, f"{address}\n{version}"))


async def look(place: Place, records: Records, enqueue: Enqueue) -> int:
    """Make reports of what is new under *place*; how many."""
    made = 0
    async for page in place.pages():
        found = {(one.address, one.version) for one in page if _is_document(one)}
        for address, version in sorted(await records.unseen(sorted(found))):
            job_id = job_id_of(address, version)
            await enqueue(job_id, address)
            await records.see(address, version, job_id)
            made += 1
    return made


def _is_document(one: Listed) -> bool:
    """Others may lie there too: hidden files, parts of uploads, and what no model can read."""
    name = one.address.rpartition("/")[2]
    return not name.startswith(".") and name.lower().endswith(EXTENSIONS) and one.is_settled

"""The folder watch: enqueues one report for each new document, even if several workers scan at once.

The job id is derived from the document's address and version, so a scan after an interrupted one enqueues the
same job. Seen documents are also recorded in a table, because a document may outlive its job.
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
    """Return the id of the job for this version of a document."""
    return str(uuid.uuid5(_NAMES, f"{address}\n{version}"))


async def enqueue_new_documents(place: Place, records: Records, enqueue: Enqueue) -> int:
    """Enqueue a report for each new document under *place*; return how many."""
    enqueued = 0
    async for page in place.pages():
        found = {(one.address, one.version) for one in page if _is_document(one)}
        for address, version in sorted(await records.unseen(sorted(found))):
            job_id = job_id_of(address, version)
            await enqueue(job_id, address)
            await records.see(address, version, job_id)
            enqueued += 1
    return enqueued


def _is_document(one: Listed) -> bool:
    """Return whether it is a complete file of a supported type, and not hidden."""
    name = one.address.rpartition("/")[2]
    return not name.startswith(".") and name.lower().endswith(EXTENSIONS) and one.is_complete

"""The chain of a report (P1): read → llm → normalise → validate → write → database.

Each is a durable step: a later attempt goes on behind the last one that was recorded. The last is the transaction that
completes the job. What is found wrong before `llm` has cost nothing; what `llm` has answered is recorded before it is judged,
so that a bad answer is paid for once, kept (P5) and not asked for again.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
import httpx2

from holdfast import Job
from systems.reports import content
from systems.reports.codes import Code
from systems.reports.documents import Documents, Place
from systems.reports.failures import Trouble
from systems.reports.model.asking import Answer, ask_model, cost_of
from systems.reports.normalise import NotJson, normalise
from systems.reports.prompt import make_messages, prompt_hash
from systems.reports.records import Capture, Records, Report
from systems.reports.schemas import Schema, check_schema, digest, find_schema, violations
from systems.reports.settings import Settings

DOCUMENTS = "documents"
#: Steps by name, in their order; an operator may forget one and those behind it.
STEPS = ("read", "llm", "normalise", "validate", "write")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a worker process has open."""

    client: httpx2.AsyncClient
    records: Records
    documents: Documents
    reports: Place


class Chain:
    """One attempt at one report."""

    def __init__(
        self, job: Job, settings: Settings, source: str, schema: str | Schema, instructions: str
    ) -> None:
        self._job, self._settings = job, settings
        self._with: Resources = job.resources
        self._source, self._given, self._instructions = source, schema, instructions
        self._text: str | None = None  #: of the document, when this attempt has read it
        self._suffix = ""  #: of the names of steps that judge by another schema than the first

    async def run(self) -> dict[str, Any]:
        asked = await self._chosen() or await self._asked()
        answer: Answer = asked["answer"]
        try:
            _judge(answer)
            # In threads: a hostile answer of a megabyte may take its time, and others are not to wait for it.
            found = await self._step("normalise", anyio.to_thread.run_sync, _normalised, answer["text"])
            await self._step("validate", anyio.to_thread.run_sync, self._validated, found["value"])
        except Trouble as trouble:
            await self._capture(trouble, asked)
            raise
        written = await self._step("write", self._written, found["value"])
        return await self._finish(answer, written, found["repairs"])

    async def _step(self, name: str, function: Any, *arguments: Any) -> Any:
        return await self._job.step(name + self._suffix, function, *arguments)

    # -- what is judged -----------------------------------------------------------------------------------------------
    async def _chosen(self) -> dict[str, Any] | None:
        """What an operator has found good by another schema: the model is not asked, whatever else is recorded."""
        if self._job.generation == 1:
            return None
        chosen = await self._with.records.overridden(self._job.id)
        if chosen is not None:
            self._schema: Schema = chosen["schema"]
            check_schema(self._schema)
            self._suffix = f":{digest(self._schema)[:12]}"
        return chosen

    async def _asked(self) -> dict[str, Any]:
        self._schema = find_schema(self._given, self._settings.schemas_dir)
        content.check_name(self._source)
        read = await self._job.step("read", self._read)
        asked: dict[str, Any] = await self._job.step("llm", self._ask, read["sha256"])
        # Behind the step: what is counted is what was recorded, and counting it again changes nothing.
        await self._with.records.note_call(
            self._job.id,
            asked["step"],
            asked["answer"],
            cost_of(asked["answer"], self._settings),
            time.time(),
        )
        return asked

    async def _read(self) -> dict[str, Any]:
        place, key = self._with.documents.find(self._source)
        async with self._job.dependency(DOCUMENTS):
            document = await place.read(key, self._settings.document_max_bytes)
        self._text = content.read_text(document)
        return {"sha256": content.sha256(document), "size": len(document.data), "version": document.version}

    async def _ask(self, sha256: str) -> dict[str, Any]:
        if self._text is None and (await self._read())["sha256"] != sha256:
            raise Trouble(Code.SOURCE_CHANGED, "it is not the document that was read first")
        assert self._text is not None
        messages = make_messages(self._text, self._schema, self._instructions)
        generation = self._job.generation
        answer = await ask_model(
            self._with.client,
            self._settings,
            messages,
            self._schema,
            request_id=f"{self._job.id}-{generation}",
        )
        step = "llm" if generation == 1 else f"llm.{generation}"
        return {"answer": answer, "prompt_hash": prompt_hash(messages), "step": step}

    def _validated(self, value: Any) -> dict[str, str]:
        errors = violations(self._schema, value)
        if errors:
            raise Mismatch(errors)
        return {"schema": digest(self._schema)}

    async def _capture(self, trouble: Trouble, asked: dict[str, Any]) -> None:
        errors = trouble.errors if isinstance(trouble, Mismatch) else [{"path": "", "message": str(trouble)}]
        body = {
            "answer": asked["answer"],
            "step": asked["step"],
            "prompt_hash": asked.get("prompt_hash", ""),
            "model": asked["answer"]["model"],
            "schema": self._schema,
            "errors": errors,
        }
        await self._with.records.capture(
            Capture(
                self._job.id,
                asked["answer"]["request_id"],
                digest(self._schema),
                trouble.code.value,
                time.time(),
                body,
            )
        )

    # -- what is left behind ------------------------------------------------------------------------------------------
    async def _written(self, value: Any) -> dict[str, str]:
        data = report_bytes(value)
        # A generation has a name of its own: what an operator asks for anew does not meet what was there before.
        key = f"{self._job.id}-{self._job.generation}.json"
        async with self._job.dependency(DOCUMENTS):
            await self._with.reports.create(key, data)
        return {"key": key, "sha256": content.digest(data)}

    async def _finish(self, answer: Answer, written: dict[str, str], repairs: list[str]) -> dict[str, Any]:
        address = f"{self._with.reports.root}/{written['key']}"
        result = {
            "key": written["key"],
            "sha256": written["sha256"],
            "model": answer["model"],
            "repairs": repairs,
        }
        report = Report(self._job.id, address, written["sha256"], answer["model"], repairs)
        async with self._job.transaction(result) as connection:
            await self._with.records.finish_in(connection, report, answer["request_id"], time.time())
        return result


class Mismatch(Trouble):
    """The answer does not fit the schema, here and there."""

    def __init__(self, errors: list[dict[str, str]]) -> None:
        super().__init__(Code.SCHEMA_MISMATCH, f"it does not fit the schema in {len(errors)} places")
        self.errors = errors


def _judge(answer: Answer) -> None:
    """Answers that are none, by their own word."""
    if answer["refusal"]:
        raise Trouble(Code.MODEL_REFUSED, "it refused")
    if answer["finish"] == "content_filter":
        raise Trouble(Code.MODEL_FILTERED, "a filter withheld it")
    if answer["overflow"]:
        raise Trouble(Code.OUTPUT_TOO_LARGE, "it was longer than may be")
    if answer["finish"] == "length":
        raise Trouble(Code.OUTPUT_CUT, "it was cut off")


def _normalised(text: str) -> dict[str, Any]:
    try:
        found = normalise(text)
    except NotJson as error:
        raise Trouble(Code.NOT_JSON, str(error)) from None
    return {"value": found.value, "repairs": found.repairs}


def report_bytes(value: Any) -> bytes:
    """A report as it is written: markup in it stays text wherever it is shown."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text.encode(errors="replace") + b"\n"

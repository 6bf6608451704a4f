"""The chain of a report (P1): read → llm → normalise → validate → write → database.

Each is a durable step: a later attempt continues after the last recorded one. The last is the transaction
that completes the job. An error found before `llm` costs nothing. The answer of `llm` is recorded before it
is checked, so a bad answer is paid for once, captured (P5) and not requested again.
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
from systems.reports.model.client import Answer, ask_model, cost_of
from systems.reports.normalise import NotJson, normalise
from systems.reports.prompt import make_messages, prompt_hash
from systems.reports.records import Capture, Records, Report
from systems.reports.schemas import Schema, check_schema, digest, find_schema, violations
from systems.reports.settings import Settings

DOCUMENTS = "documents"
#: The names of the steps, in order. An operator can discard a step and the ones after it.
STEPS = ("read", "llm", "normalise", "validate", "write")


@dataclass(frozen=True, slots=True)
class Resources:
    """The connections that a worker process holds open."""

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
        self._resources: Resources = job.resources
        self._source, self._given_schema, self._instructions = source, schema, instructions
        self._text: str | None = None  #: the document's text, once this attempt has read it
        self._suffix = ""  #: appended to step names when an operator replaced the schema

    async def run(self) -> dict[str, Any]:
        """Run the steps, complete the job, and return its result.

        Raises `Trouble`; an unusable answer is captured.
        """
        call = await self._overridden_answer() or await self._recorded_answer()
        answer: Answer = call["answer"]
        try:
            _check_usable(answer)
            # In threads: a hostile answer of a megabyte can take long, and must not block other jobs.
            found = await self._step("normalise", anyio.to_thread.run_sync, _normalise_answer, answer["text"])
            await self._step("validate", anyio.to_thread.run_sync, self._validate, found["value"])
        except Trouble as error:
            await self._capture(error, call)
            raise
        written = await self._step("write", self._write_report, found["value"])
        return await self._finish(answer, written, found["repairs"])

    async def _step(self, name: str, function: Any, *arguments: Any) -> Any:
        await self._job.progress(100 * STEPS.index(name) / len(STEPS), name)
        return await self._job.step(name + self._suffix, function, *arguments)

    # -- the answer ---------------------------------------------------------------------------------------------------
    async def _overridden_answer(self) -> dict[str, Any] | None:
        """Return the captured answer that an operator approved with another schema; None if there is none.

        It takes precedence over recorded steps, and the model is not called.
        """
        if self._job.generation == 1:
            return None
        override = await self._resources.records.overridden(self._job.id)
        if override is not None:
            self._schema: Schema = override["schema"]
            check_schema(self._schema)
            self._suffix = f":{digest(self._schema)[:12]}"
        return override

    async def _recorded_answer(self) -> dict[str, Any]:
        self._schema = find_schema(self._given_schema, self._settings.schemas_dir)
        content.check_name(self._source)
        read = await self._step("read", self._read)
        call: dict[str, Any] = await self._step("llm", self._ask, read["sha256"])
        # After the step, so that only recorded calls are counted. Counting one again changes nothing.
        await self._resources.records.note_call(
            self._job.id,
            call["step"],
            call["answer"],
            cost_of(call["answer"], self._settings),
            time.time(),
        )
        return call

    async def _read(self) -> dict[str, Any]:
        place, key = self._resources.documents.find(self._source)
        async with self._job.dependency(DOCUMENTS):
            document = await place.read(key, self._settings.document_max_bytes)
        self._text = content.read_text(document)
        return {"sha256": content.sha256(document), "size": len(document.data), "version": document.version}

    async def _ask(self, sha256: str) -> dict[str, Any]:
        if self._text is None and (await self._read())["sha256"] != sha256:
            raise Trouble(Code.SOURCE_CHANGED, "the document differs from the one that was read first")
        assert self._text is not None
        messages = make_messages(self._text, self._schema, self._instructions)
        generation = self._job.generation
        answer = await ask_model(
            self._resources.client,
            self._settings,
            messages,
            self._schema,
            request_id=f"{self._job.id}-{generation}",
        )
        step = "llm" if generation == 1 else f"llm.{generation}"
        return {"answer": answer, "prompt_hash": prompt_hash(messages), "step": step}

    def _validate(self, value: Any) -> dict[str, str]:
        errors = violations(self._schema, value)
        if errors:
            raise SchemaViolation(errors)
        return {"schema": digest(self._schema)}

    async def _capture(self, error: Trouble, call: dict[str, Any]) -> None:
        errors = error.errors if isinstance(error, SchemaViolation) else [{"path": "", "message": str(error)}]
        body = {
            "answer": call["answer"],
            "step": call["step"],
            "prompt_hash": call.get("prompt_hash", ""),
            "model": call["answer"]["model"],
            "schema": self._schema,
            "errors": errors,
        }
        await self._resources.records.capture(
            Capture(
                self._job.id,
                call["answer"]["request_id"],
                digest(self._schema),
                error.code.value,
                time.time(),
                body,
            )
        )

    # -- the report ---------------------------------------------------------------------------------------------------
    async def _write_report(self, value: Any) -> dict[str, str]:
        data = report_bytes(value)
        # Each generation has its own key, so a report that an operator requests again does not conflict with
        # the old one.
        key = f"{self._job.id}-{self._job.generation}.json"
        async with self._job.dependency(DOCUMENTS):
            await self._resources.reports.create(key, data)
        return {"key": key, "sha256": content.digest(data)}

    async def _finish(self, answer: Answer, written: dict[str, str], repairs: list[str]) -> dict[str, Any]:
        address = f"{self._resources.reports.root}/{written['key']}"
        result = {
            "key": written["key"],
            "sha256": written["sha256"],
            "model": answer["model"],
            "repairs": repairs,
        }
        report = Report(self._job.id, address, written["sha256"], answer["model"], repairs)
        async with self._job.transaction(result) as connection:
            await self._resources.records.finish_in(connection, report, answer["request_id"], time.time())
        return result


class SchemaViolation(Trouble):
    """The answer does not fit the schema; *errors* lists each path and what is wrong there."""

    def __init__(self, errors: list[dict[str, str]]) -> None:
        super().__init__(Code.SCHEMA_MISMATCH, f"the answer has {len(errors)} schema errors")
        self.errors = errors


def _check_usable(answer: Answer) -> None:
    """Raise `Trouble` for an answer that the model refused, filtered or cut off."""
    if answer["refusal"]:
        raise Trouble(Code.MODEL_REFUSED, "the model refused")
    if answer["finish"] == "content_filter":
        raise Trouble(Code.MODEL_FILTERED, "a filter withheld the answer")
    if answer["overflow"]:
        raise Trouble(Code.OUTPUT_TOO_LARGE, "the answer exceeds the size limit")
    if answer["finish"] == "length":
        raise Trouble(Code.OUTPUT_CUT, "the answer was cut off")


def _normalise_answer(text: str) -> dict[str, Any]:
    try:
        found = normalise(text)
    except NotJson as error:
        raise Trouble(Code.NOT_JSON, str(error)) from None
    return {"value": found.value, "repairs": found.repairs}


def report_bytes(value: Any) -> bytes:
    """Serialize a report as JSON. Markup characters are escaped, so that no viewer renders them."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text.encode(errors="replace") + b"\n"

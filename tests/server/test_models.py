"""Models of answers that take their fields from the rows they show."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

from pydantic import Field

from holdfast.jobs.job import DeadLetter, JobRow
from holdfast.server.models import DeadLetterView, JobView
from holdfast.server.types import ResponseModel, shows


@dataclass
class Parcel:
    id: str
    sent_at: datetime | None
    secret: str
    tags: tuple[str, ...] = ()


@shows(Parcel, without=("secret",))
class ParcelView(ResponseModel):
    """A parcel."""

    id: str = Field(description="Its number.")
    is_late: bool


def test_a_model_has_the_fields_of_its_row_and_its_own() -> None:
    drawn = ParcelView.model_json_schema()
    assert list(drawn["properties"]) == ["id", "sent_at", "tags", "is_late"]
    assert drawn["required"] == ["id", "sent_at", "tags", "is_late"]
    assert drawn["properties"]["id"]["description"] == "Its number."
    assert (drawn["title"], drawn["description"]) == ("ParcelView", "A parcel.")


def test_every_field_of_a_job_and_of_a_dead_letter_is_documented_except_its_arguments() -> None:
    for row, view in ((JobRow, JobView), (DeadLetter, DeadLetterView)):
        assert {field.name for field in fields(row)} - set(view.model_fields) == {"payload"}

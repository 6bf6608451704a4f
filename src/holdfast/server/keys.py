"""`/keys`: make, end and replace the keys of this API. A secret is told once, in the answer that makes it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import AfterValidator, ConfigDict, Field

from holdfast.domain.access import AccessKey, Action, Role
from holdfast.server.responses import answer, token_of
from holdfast.server.routing import allows, app_of, context_of, router
from holdfast.server.types import RequestModel, ResponseModel, Span, Word, printable

KeyIdPath = Annotated[str, Path(description="The key's id, not its secret.", max_length=100)]
Name = Annotated[str, Field(max_length=200), AfterValidator(printable)]


class KeyView(ResponseModel):
    id: str
    name: str
    role: Role
    owner: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class NewKeyView(KeyView):
    secret: str = Field(description="Kept nowhere: this is the only time it is told.", examples=["hf_…"])


class Keys(ResponseModel):
    keys: list[KeyView]


class KeyRequest(RequestModel):
    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"role": {"const": "owner"}}},
            "then": {"required": ["owner"], "properties": {"owner": {"type": "string"}}},
            "else": {"properties": {"owner": {"type": "null"}}},
        }
    )

    role: Role = Field(examples=["owner"])
    owner: Word | None = Field(default=None, description="For the role owner: whose jobs it reaches.")
    name: Name = Field(default="", description="What people call it.")
    lasts: Span | None = Field(default=None, description="After it the key ends; null: it does not.")


class RevokeKeyRequest(RequestModel):
    after: Span | None = Field(default=None, description="Not now, but after this while.")


class RotateKeyRequest(RequestModel):
    overlap: Span = Field(default="24h", description="How long the old key stays good beside the new one.")


class RevokedKey(ResponseModel):
    id: str
    revoked: bool


routes = router("keys")


@routes.get(
    "/keys",
    response_model=Keys,
    summary="All keys, those that ended too; oldest first",
    **allows(Action.ADMINISTER),
)
async def list_keys(request: Request) -> Response:
    return answer({"keys": [_view(key) for key in await app_of(request).keys()]})


@routes.post(
    "/keys",
    status_code=201,
    response_model=NewKeyView,
    summary="Make a key",
    **allows(Action.ADMINISTER),
)
async def create_key(request: Request, body: KeyRequest) -> Response:
    made = await app_of(request).create_key(
        body.role, owner=body.owner, name=body.name, lasts=body.lasts, token=token_of(request)
    )
    context_of(request).keys.forget()
    return answer(_new(*made), 201)


@routes.post(
    "/keys/{key_id}/revoke",
    response_model=RevokedKey,
    summary="End a key; other servers may believe it for some seconds more",
    **allows(Action.ADMINISTER),
)
async def revoke_key(request: Request, key_id: KeyIdPath, body: RevokeKeyRequest | None = None) -> Response:
    await app_of(request).revoke_key(key_id, after=0 if body is None or body.after is None else body.after)
    context_of(request).keys.forget()
    return answer({"id": key_id, "revoked": True})


@routes.post(
    "/keys/{key_id}/rotate",
    status_code=201,
    response_model=NewKeyView,
    summary="Make a key in the place of another, which stays good for a while",
    **allows(Action.ADMINISTER),
)
async def rotate_key(request: Request, key_id: KeyIdPath, body: RotateKeyRequest | None = None) -> Response:
    overlap = (body or RotateKeyRequest()).overlap
    made = await app_of(request).rotate_key(key_id, overlap=overlap, token=token_of(request))
    context_of(request).keys.forget()
    return answer(_new(*made), 201)


def _view(key: AccessKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in KeyView.model_fields}


def _new(key: AccessKey, secret: str) -> dict[str, Any]:
    return _view(key) | {"secret": secret}

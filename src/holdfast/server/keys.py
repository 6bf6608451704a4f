"""`/keys`: create, revoke and rotate the keys of this API. A secret is shown once, in the response that creates it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import AfterValidator, ConfigDict, Field

from holdfast.engine.access import AccessKey, Action, Role
from holdfast.server.responses import answer, token_of
from holdfast.server.routing import allows, app_of, context_of, router
from holdfast.server.types import RequestModel, ResponseModel, Span, Word, picked, printable

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
    secret: str = Field(description="Shown now and never again.", examples=["hf_…"])


class KeyList(ResponseModel):
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
    owner: Word | None = Field(
        default=None, description="For the role owner: the owner whose jobs the key reaches."
    )
    name: Name = Field(default="", description="A name for people.")
    lasts: Span | None = Field(
        default=None, description="How long the key is valid; null: it does not expire."
    )


class RevokeKeyRequest(RequestModel):
    after: Span | None = Field(default=None, description="Revoke it after this time; null: now.")


class RotateKeyRequest(RequestModel):
    overlap: Span = Field(default="24h", description="How long the old key stays valid beside the new one.")


class RevokedKey(ResponseModel):
    id: str
    revoked: bool


routes = router("keys")


@routes.get("/keys", response_model=KeyList, **allows(Action.ADMINISTER))
async def list_keys(request: Request) -> Response:
    """List all keys, including ended ones, oldest first."""
    return answer({"keys": [_view(key) for key in await app_of(request).keys.list()]})


@routes.post("/keys", status_code=201, response_model=NewKeyView, **allows(Action.ADMINISTER))
async def create_key(request: Request, body: KeyRequest) -> Response:
    """Create a key."""
    new = await app_of(request).keys.create(
        body.role, owner=body.owner, name=body.name, lasts=body.lasts, token=token_of(request)
    )
    context_of(request).keys.clear()
    return answer(_with_secret(*new), 201)


@routes.post("/keys/{key_id}/revoke", response_model=RevokedKey, **allows(Action.ADMINISTER))
async def revoke_key(request: Request, key_id: KeyIdPath, body: RevokeKeyRequest | None = None) -> Response:
    """Revoke a key; other servers may accept it for some more seconds."""
    await app_of(request).keys.revoke(key_id, after=0 if body is None or body.after is None else body.after)
    context_of(request).keys.clear()
    return answer({"id": key_id, "revoked": True})


@routes.post("/keys/{key_id}/rotate", status_code=201, response_model=NewKeyView, **allows(Action.ADMINISTER))
async def rotate_key(request: Request, key_id: KeyIdPath, body: RotateKeyRequest | None = None) -> Response:
    """Create a key that replaces another, which stays valid for a while."""
    overlap = (body or RotateKeyRequest()).overlap
    new = await app_of(request).keys.rotate(key_id, overlap=overlap, token=token_of(request))
    context_of(request).keys.clear()
    return answer(_with_secret(*new), 201)


def _view(key: AccessKey) -> dict[str, Any]:
    return picked(key, KeyView)


def _with_secret(key: AccessKey, secret: str) -> dict[str, Any]:
    return _view(key) | {"secret": secret}

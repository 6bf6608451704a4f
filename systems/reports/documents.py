"""Documents and reports at rest: a folder or a bucket, by one kind of address.

Only what lies under the configured roots can be named: `s3://bucket/prefix/a.txt` in full, or `a.txt` for the first root.
A folder is called by its last name: what lies in `data/inbox` is `file://inbox/a.txt`.
Failures come out as ours: `Trouble` for what will not change, `DocumentsAway` for what may.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import LocalStore, S3Store

from holdfast import UsageError
from systems.common.parts import make_folder
from systems.reports.codes import Code
from systems.reports.failures import DocumentsAway, Trouble

T = TypeVar("T")
LONGEST_ADDRESS = 1024
#: A file that was not written to for so long is whole.
SETTLED = timedelta(seconds=1)
#: A short hiccup of a bucket is waited for here; a longer one is the policy's to deal with.
_RETRIES, _PATIENCE = 1, timedelta(seconds=10)
_CONNECT, _ANSWER = timedelta(seconds=5), timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Document:
    """An object as it was read."""

    data: bytes
    version: str  #: its entity tag: another content has another
    attributes: Mapping[str, str]  #: content type, and the metadata given when it was stored


@dataclass(frozen=True, slots=True)
class Listed:
    address: str
    version: str
    is_settled: bool  #: not being written just now


class Place:
    """One root."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url) if "://" in url else None
        self._store: Any
        self._settles = False  #: an object of a bucket is there whole; a file grows
        if parts is not None and parts.scheme == "s3":
            prefix = parts.path.strip("/")
            self.root = f"s3://{parts.netloc}/{prefix}".rstrip("/")
            self._store = S3Store(
                parts.netloc,
                prefix=prefix or None,
                client_options={"allow_http": True, "connect_timeout": _CONNECT, "timeout": _ANSWER},
                retry_config={"max_retries": _RETRIES, "retry_timeout": _PATIENCE},
            )
        else:
            folder = Path(unquote(parts.path) if parts is not None else url).resolve()
            make_folder(folder)
            self.root = f"file://{folder.name}"  # where it lies on this machine is nobody's business
            self._settles = True
            self._store = LocalStore(folder)

    async def read(self, key: str, most: int) -> Document:
        """`Trouble` when it is not there or larger than *most*, which is known before any of it is read."""
        answer = await _told(obstore.get_async(self._store, key))
        size = answer.meta["size"]
        if size > most:
            raise Trouble(Code.TOO_LARGE, f"{size:,} bytes, at most {most:,}")
        data = bytes(await _told(answer.bytes_async()))
        if len(data) != size:
            raise DocumentsAway("the document was cut off on its way")
        said = {str(name).lower(): str(value) for name, value in answer.attributes.items()}
        return Document(data, str(answer.meta.get("e_tag") or ""), said)

    async def create(self, key: str, data: bytes) -> None:
        """Write it if nothing has this name. The same content is there already: it was ours, or a twin's. Another
        content: `Trouble` with WRITE_CONFLICT, and nothing is changed."""
        try:
            await _told(obstore.put_async(self._store, key, data, mode="create", use_multipart=False))
        except (AlreadyExistsError, PreconditionError):
            there = await self.read(key, max(len(data), 1) * 2)
            if there.data != data:
                raise Trouble(Code.WRITE_CONFLICT, "another report has this name") from None

    async def pages(self) -> AsyncIterator[list[Listed]]:
        stream = obstore.list(self._store, chunk_size=500)
        while True:
            try:
                page = await _told(stream.__anext__())
            except StopAsyncIteration:
                return
            yield [self._listed(one) for one in page]

    def _listed(self, one: Any) -> Listed:
        version = str(one.get("e_tag") or one["last_modified"])
        age = datetime.now(UTC) - one["last_modified"]
        return Listed(f"{self.root}/{one['path']}", version, not self._settles or age >= SETTLED)


class Documents:
    """The roots that may be read."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._places = [Place(url) for url in urls]
        names = [place.root for place in self._places]
        if twice := {name for name in names if names.count(name) > 1}:
            raise UsageError(
                f"two places for documents are called {min(twice)}; give one of them another name"
            )

    def find(self, source: str) -> tuple[Place, str]:
        """The place of *source* and its key there. `Trouble` with INVALID_SOURCE when it is under none of the roots."""
        checked = checked_address(source)
        if "://" not in checked:
            return self._places[0], checked_key(checked)
        for place in self._places:
            if checked.startswith(f"{place.root}/"):
                return place, checked_key(checked.removeprefix(f"{place.root}/"))
        raise Trouble(Code.INVALID_SOURCE, "it is under none of the places that may be read")


def checked_address(source: object) -> str:
    if not isinstance(source, str) or not 1 <= len(source) <= LONGEST_ADDRESS or not source.isprintable():
        raise Trouble(Code.INVALID_SOURCE, "it is a text of 1 to 1024 printable characters")
    return source


def checked_key(key: str) -> str:
    if "\\" in key or any(part in ("", ".", "..") for part in key.split("/")):
        raise Trouble(Code.INVALID_SOURCE, "its path has a part that is empty, or points elsewhere")
    return key


async def _told(work: Awaitable[T]) -> T:
    """The same, with failures in our words: the driver's name paths and addresses."""
    try:
        return await work
    except (AlreadyExistsError, PreconditionError):
        raise
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):  # then nothing is known about the object
            raise DocumentsAway("there is no such bucket") from None
        raise Trouble(Code.MISSING_OBJECT, "no such object") from None
    except ValueError:
        raise Trouble(Code.INVALID_SOURCE, "the store cannot have an object of this name") from None
    except (BaseError, OSError) as error:
        raise DocumentsAway(f"the store answered with {type(error).__name__}") from None

"""Storage for documents and reports: folders and S3 buckets, with one form of address for both.

An address names an object under a configured root: `s3://bucket/prefix/a.txt` in full, or `a.txt` under the
first root. A folder goes by its last part: the address of `data/inbox/a.txt` is `file://inbox/a.txt`.
Permanent failures raise `Trouble`, and temporary ones `DocumentsUnavailable`.
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
from systems.reports.failures import DocumentsUnavailable, Trouble

T = TypeVar("T")
LONGEST_ADDRESS = 1024
#: A file that was not written to for this long counts as complete.
COMPLETE_AFTER = timedelta(seconds=1)
#: Short failures of a bucket are retried here; longer ones are left to the retry policy.
_RETRIES, _RETRY_FOR = 1, timedelta(seconds=10)
_CONNECT, _ANSWER = timedelta(seconds=5), timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Document:
    """An object that was read from a store."""

    data: bytes
    version: str  #: the entity tag, which changes with the content
    attributes: Mapping[str, str]  #: the content type, and the metadata given when it was stored


@dataclass(frozen=True, slots=True)
class Listed:
    """An object in a listing."""

    address: str
    version: str
    is_complete: bool  #: False while it may still be written to


class Place:
    """One root: a folder, or a prefix of an S3 bucket."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url) if "://" in url else None
        self._store: Any
        self._grows = False  #: a file can be listed while it is written; an object of a bucket cannot
        if parts is not None and parts.scheme == "s3":
            prefix = parts.path.strip("/")
            self.root = f"s3://{parts.netloc}/{prefix}".rstrip("/")
            self._store = S3Store(
                parts.netloc,
                prefix=prefix or None,
                client_options={"allow_http": True, "connect_timeout": _CONNECT, "timeout": _ANSWER},
                retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY_FOR},
            )
        else:
            folder = Path(unquote(parts.path) if parts is not None else url).resolve()
            make_folder(folder)
            self.root = f"file://{folder.name}"  # without the full path, which callers must not learn
            self._grows = True
            self._store = LocalStore(folder)

    async def read(self, key: str, most: int) -> Document:
        """Read the object *key*.

        Raises `Trouble` when it is missing, or larger than *most* bytes, which is checked before reading.
        """
        answer = await _translated(obstore.get_async(self._store, key))
        size = answer.meta["size"]
        if size > most:
            raise Trouble(Code.TOO_LARGE, f"{size:,} bytes, at most {most:,}")
        data = bytes(await _translated(answer.bytes_async()))
        if len(data) != size:
            raise DocumentsUnavailable("the document was cut off in transit")
        attributes = {str(name).lower(): str(value) for name, value in answer.attributes.items()}
        return Document(data, str(answer.meta.get("e_tag") or ""), attributes)

    async def create(self, key: str, data: bytes) -> None:
        """Write *data* as *key*, unless the key exists.

        An existing object with the same content is accepted: it was written by an earlier or a concurrent
        attempt. With other content this raises `Trouble` with WRITE_CONFLICT and changes nothing.
        """
        try:
            await _translated(obstore.put_async(self._store, key, data, mode="create", use_multipart=False))
        except (AlreadyExistsError, PreconditionError):
            existing = await self.read(key, max(len(data), 1) * 2)
            if existing.data != data:
                raise Trouble(Code.WRITE_CONFLICT, "another report has this name") from None

    async def pages(self) -> AsyncIterator[list[Listed]]:
        """Yield all objects under this root, up to 500 at a time."""
        stream = obstore.list(self._store, chunk_size=500)
        while True:
            try:
                page = await _translated(stream.__anext__())
            except StopAsyncIteration:
                return
            yield [self._listed(one) for one in page]

    def _listed(self, one: Any) -> Listed:
        version = str(one.get("e_tag") or one["last_modified"])
        age = datetime.now(UTC) - one["last_modified"]
        return Listed(f"{self.root}/{one['path']}", version, not self._grows or age >= COMPLETE_AFTER)


class Documents:
    """The roots from which documents may be read."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._places = [Place(url) for url in urls]
        names = [place.root for place in self._places]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise UsageError(
                f"two document roots are called {min(duplicates)}; give one of them another name"
            )

    def find(self, source: str) -> tuple[Place, str]:
        """Return the place of *source* and its key there.

        Raises `Trouble` with INVALID_SOURCE when no root has it.
        """
        checked = checked_address(source)
        if "://" not in checked:
            return self._places[0], checked_key(checked)
        for place in self._places:
            if checked.startswith(f"{place.root}/"):
                return place, checked_key(checked.removeprefix(f"{place.root}/"))
        raise Trouble(Code.INVALID_SOURCE, "the address is under none of the document roots")


def checked_address(source: object) -> str:
    """Return *source* if it has the form of an address; raise `Trouble` with INVALID_SOURCE otherwise."""
    if not isinstance(source, str) or not 1 <= len(source) <= LONGEST_ADDRESS or not source.isprintable():
        raise Trouble(Code.INVALID_SOURCE, "an address has 1 to 1024 printable characters")
    return source


def checked_key(key: str) -> str:
    """Return *key*; raise `Trouble` with INVALID_SOURCE if one of its parts is empty, `.` or `..`."""
    if "\\" in key or any(part in ("", ".", "..") for part in key.split("/")):
        raise Trouble(Code.INVALID_SOURCE, "the path has an empty, `.` or `..` part")
    return key


async def _translated(work: Awaitable[T]) -> T:
    """Await *work*, and raise the driver's errors as ours, whose texts hold no paths or addresses."""
    try:
        return await work
    except (AlreadyExistsError, PreconditionError):
        raise
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):  # says nothing about the object itself
            raise DocumentsUnavailable("there is no such bucket") from None
        raise Trouble(Code.MISSING_OBJECT, "no such object") from None
    except ValueError:
        raise Trouble(Code.INVALID_SOURCE, "the store does not support this object name") from None
    except (BaseError, OSError) as error:
        raise DocumentsUnavailable(f"the store answered with {type(error).__name__}") from None

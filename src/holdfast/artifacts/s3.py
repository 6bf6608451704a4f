"""Artifacts in a bucket of S3 or of a service that speaks its protocol.

Region, endpoint and credentials come from the usual AWS_* environment variables. An object appears complete
or not at all. More than a few megabytes are sent in parts.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

T = TypeVar("T")

#: A short outage of the bucket is waited out here, because the job's work is done and only its result is
#: missing. After a longer one the task's retry policy applies.
_RETRIES, _PATIENCE = 5, timedelta(seconds=30)


class S3Artifacts:
    """Artifacts as objects under *prefix* in *bucket*."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self._where = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket = S3Store(
            bucket,
            prefix=prefix or None,
            client_options={"allow_http": True, "connect_timeout": timedelta(seconds=5)},
            retry_config={"max_retries": _RETRIES, "retry_timeout": _PATIENCE},
        )

    async def put(self, name: str, data: bytes) -> str:
        await self._as_file_errors(obstore.put_async(self._bucket, name, data))
        return name

    async def get(self, reference: str) -> bytes:
        answer = await self._as_file_errors(obstore.get_async(self._bucket, reference))
        return bytes(await self._as_file_errors(answer.bytes_async()))

    async def delete(self, reference: str) -> None:
        try:
            await self._as_file_errors(obstore.delete_async(self._bucket, reference))
        except FileNotFoundError:
            return

    async def _as_file_errors(self, work: Awaitable[T]) -> T:
        """Await *work*, and raise its errors as the `OSError` that a file would raise."""
        try:
            return await work
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):  # then nothing is known about the object
                raise OSError(errno.EIO, f"{self._where}: there is no such bucket") from None
            raise FileNotFoundError(errno.ENOENT, f"{self._where}: no such artifact") from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise PermissionError(errno.EACCES, f"{self._where}: {_first_line(error)}") from None
        except (BaseError, ValueError) as error:
            raise OSError(errno.EIO, f"{self._where}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    """Return the text of *error* without the debug dump that the driver appends."""
    return str(error).strip().split("\n", 1)[0]

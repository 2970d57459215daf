"""Opening a remote store by its address, a limit for every call to it, and its failures in one sentence.

The clients of the stores try again for minutes, and say of a missing password or network what only their authors
understand. A call that takes longer than the limit is given up: its thread goes on for itself until the client ends it,
and holds up nobody, not even the end of the process.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Self, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs

from servo.errors import StorageFailed
from servo.execution.settings import shown_address

T = TypeVar("T")

DEFAULT_SECONDS = 60.0
_CONNECT_SECONDS = 10.0
_ATTEMPTS = 3
_LOOK_SECONDS = 3.0  # to find out why there was no answer
_S3_OPTIONS = frozenset({"region", "scheme", "endpoint_override", "allow_bucket_creation", "allow_bucket_deletion"})


class _Kind(msgspec.Struct, frozen=True):
    """A kind of store: how Arrow calls it, and what it needs, to be said where it fails."""

    arrow: str
    needs: str


_S3 = _Kind("s3", "AWS credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role) and AWS_REGION")
_GCS = _Kind("gs", "Google credentials (GOOGLE_APPLICATION_CREDENTIALS, or those of the machine)")
_AZURE = _Kind("abfss", "Azure credentials (AZURE_CLIENT_ID and the like, or `az login`)")
_HDFS = _Kind("hdfs", "a Hadoop client: JAVA_HOME, HADOOP_HOME and CLASSPATH=$(hadoop classpath --glob)")
_KINDS = {
    "s3": _S3,
    "s3a": _S3,
    "s3n": _S3,
    "gs": _GCS,
    "gcs": _GCS,
    "abfs": msgspec.structs.replace(_AZURE, arrow="abfs"),
    "abfss": _AZURE,
    "hdfs": _HDFS,
    "viewfs": msgspec.structs.replace(_HDFS, arrow="viewfs"),
}

# What the clients say, and what it means; the first that fits.
_MEANINGS = (
    (r"libjvm|libhdfs|CLASSPATH|NoClassDefFound|ClassNotFound", "Hadoop's client library is not to be found here"),
    (r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist|ContainerNotFound", "there is no such bucket"),
    (
        r"ACCESS_DENIED|AccessDenied|Forbidden|InvalidAccessKeyId|SIGNATURE|Unauthorized|\b40[13]\b|PERMISSION_DENIED",
        "access is denied",
    ),
    (r"resolve host|resolve the host|Name or service not known", "the name of its server is not known here"),
    (r"connect to server|Failed to connect|Connection refused|CouldntConnect", "nobody takes connections there"),
    (r"timed? ?out|Timeout|too slow|Operation too slow", "its server takes connections and does not answer"),
    (r"OAuth2|[Cc]redential|DefaultAzure|token", "no credentials are to be found, or they are not accepted"),
)


class RemoteStore:
    """A store that was opened: Arrow's file system for it, the path inside, and what guards each call."""

    def __init__(self, root: str, kind: _Kind, seconds: float) -> None:
        self.address = root.partition("?")[0].rstrip("/")  # as Spark takes it
        self.seconds = seconds
        self._root = root
        self._kind = kind
        self.system: pafs.FileSystem | None = None
        self.path = ""

    @classmethod
    def of(cls, system: pafs.FileSystem, path: str, address: str, seconds: float = DEFAULT_SECONDS) -> Self:
        """A store by the file system that it is, for what is at a path in it."""
        store = cls(address, _Kind("file", "to be there"), seconds)
        store.system, store.path = system, path
        return store

    def require_bucket(self) -> None:
        """Refuse a bucket that is not there; one that may not be looked at passes, since its content may be."""
        system, bucket = self.system, self.path.partition("/")[0]
        if system is None or not bucket:
            return
        try:
            found = self.call(self.address, lambda: system.get_file_info(bucket))
        except StorageFailed:
            return
        if found.type == pafs.FileType.NotFound:
            raise StorageFailed(
                f"the storage {shown_address(self.address)} cannot be used: there is no bucket {bucket}",
                hint="make it, or correct the address: `storage` in servo.toml, or SERVO_STORAGE",
            )

    def call(self, what: str, work: Callable[[], T]) -> T:
        """Do something that asks the store, in the time that there is; `what` says where, for whoever reads of it."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(work())
            except BaseException as problem:  # noqa: BLE001 (it goes on in the thread that waits)
                answer.set_exception(problem)

        # A daemon: Python waits for threads of other kinds before it ends.
        Thread(target=run, name="storage", daemon=True).start()
        try:
            return answer.result(self.seconds)
        except TimeoutError as problem:
            if answer.done() and answer.exception() is problem:
                raise self._failed(what, str(problem)) from problem
            raise self._failed(what, f"no answer in {self.seconds:g} s") from None
        except (OSError, pa.ArrowException) as problem:
            raise self._failed(what, str(problem)) from problem

    def _failed(self, what: str, said: str) -> StorageFailed:
        meaning = next((text for pattern, text in _MEANINGS if re.search(pattern, said)), None)
        first = " ".join((said.strip().splitlines() or ["no reason is given"])[0].split())
        reasons = [meaning] if meaning else [f"{first:.200}"]
        if said.startswith("no answer"):
            reasons = [said, *self._network()]
        elif meaning and "Hadoop" not in meaning:
            reasons.append(f"its client says: {first:.160}")
        return StorageFailed(
            f"the storage {shown_address(what.rstrip('/'))} cannot be used: {'; '.join(reasons)}",
            hint=f"{self.address.partition('://')[0]}:// needs the network and {self._kind.needs};"
            " `servo doctor` tries it, storage_timeout_seconds is how long a call may take",
        )

    def _network(self) -> list[str]:
        """What the network says of the server: its name, and whether it takes connections."""
        server = _server(self._root, self._kind)
        if server is None or os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"):
            return []
        host, port = server
        look: Future[None] = Future()

        def connect() -> None:
            try:
                socket.create_connection((host, port), timeout=_LOOK_SECONDS).close()
                look.set_result(None)
            except OSError as problem:
                look.set_exception(problem)

        Thread(target=connect, name="storage", daemon=True).start()  # names may take long to look up
        try:
            look.result(2 * _LOOK_SECONDS)
        except socket.gaierror:
            return [f"the name {host} is not known here"]
        except OSError as problem:  # TimeoutError is one
            return [f"{host}:{port} takes no connections ({(problem.strerror or 'no answer').lower()})"]
        return [f"{host}:{port} takes connections and does not answer"]


def open_store(root: str, seconds: float = DEFAULT_SECONDS) -> RemoteStore:
    """Open the store at an address such as `s3://bucket/prefix`; StorageFailed where that cannot be."""
    scheme = root.partition("://")[0].lower()
    kind = _KINDS.get(scheme)
    if kind is None:
        raise StorageFailed(
            f"nothing can be stored at {shown_address(root)}: {scheme}:// is not known",
            hint="give a folder, or an address that begins with s3://, s3a://, gs://, abfss:// or hdfs://",
        )
    store = RemoteStore(root, kind, seconds)
    # Opening one asks for the region of a bucket, or starts the client.
    store.system, path = store.call(store.address, lambda: _opened(root, kind, seconds))
    store.path = path.rstrip("/")
    return store


def _opened(root: str, kind: _Kind, seconds: float) -> tuple[pafs.FileSystem, str]:
    rest = root.partition("://")[2]
    if kind is _S3:
        return _s3(rest, seconds)
    if kind is _GCS and "retry_limit_seconds=" not in rest:
        rest += f"{'&' if '?' in rest else '?'}{urlencode({'retry_limit_seconds': f'{seconds:g}'})}"
    system, path = pafs.FileSystem.from_uri(f"{kind.arrow}://{rest}")
    return system, path


def _s3(rest: str, seconds: float) -> tuple[pafs.FileSystem, str]:
    """As Arrow reads such an address, but with limits, and with the region from where AWS's own tools take it."""
    parts = urlsplit(f"//{rest}")
    options = dict(parse_qsl(parts.query))
    if unknown := options.keys() - _S3_OPTIONS:
        raise pa.ArrowInvalid(f"the address has an option {min(unknown)!r}, known are {', '.join(sorted(_S3_OPTIONS))}")
    bucket = parts.netloc.rpartition("@")[2]
    region = options.pop("region", None) or _aws_region()
    custom = options.get("endpoint_override") or _aws_endpoint()
    if region is None and not custom:
        region = pafs.resolve_s3_region(bucket)
    flags = {name: value.lower() in ("1", "true") for name, value in options.items() if name.startswith("allow_")}
    keys = {}
    if parts.username and parts.password:
        keys = {"access_key": unquote(parts.username), "secret_key": unquote(parts.password)}
    system = pafs.S3FileSystem(
        region=region or "us-east-1",
        connect_timeout=min(seconds, _CONNECT_SECONDS),
        # All attempts together in the time that there is: a process that ends waits for them.
        request_timeout=max(seconds / _ATTEMPTS, 1.0),
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        **{name: value for name, value in options.items() if name not in flags},
        **flags,
        **keys,
    )
    return system, f"{bucket}{unquote(parts.path)}"


def _aws_region() -> str | None:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")


def _aws_endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _server(root: str, kind: _Kind) -> tuple[str, int] | None:
    """Who is asked about an address; None where only the client knows."""
    address, _, query = root.partition("?")
    options = dict(parse_qsl(query))
    override = options.get("endpoint_override")
    if override is not None:
        parts = urlsplit(override if "://" in override else f"{options.get('scheme', 'https')}://{override}")
    elif kind is _S3:
        region = options.get("region") or _aws_region() or "us-east-1"
        parts = urlsplit(_aws_endpoint() or f"https://s3.{region}.amazonaws.com")
    elif kind is _GCS:
        parts = urlsplit(os.environ.get("CLOUD_STORAGE_EMULATOR_ENDPOINT") or "https://storage.googleapis.com")
    else:
        parts = urlsplit(quote(address, safe=":/@"))
    default = {"http": 80, "hdfs": 8020}.get(parts.scheme, 443)
    return (parts.hostname, parts.port or default) if parts.hostname else None

"""Spans, exported as OTEL_* say and in no other way; without these variables nothing is imported and nothing is done.

A trace goes on across processes: the request for a run holds the `traceparent` of who asked, and a worker's spans
are children of it. The extra `otel` brings what exports; a program that has set up OpenTelemetry itself is left
to it.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = ["Current", "past_span", "span", "traceparent"]

log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_HEADER = "traceparent"
_END_SECONDS = 2.0

Kind = Literal["internal", "server"]


class Current:
    """The span that is under way, or nothing."""

    def __init__(self, of: Span | None = None) -> None:
        self._of = of

    def set(self, name: str, value: str | int | float | bool) -> None:
        if self._of is not None:
            self._of.set_attribute(name, value)


_NONE = Current()


@contextmanager
def span(name: str, *, parent: str | None = None, kind: Kind = "internal", **attributes: Any) -> Iterator[Current]:
    """What happens in the block, as a span: a child of the one around it, or of a `traceparent` from elsewhere.

    Attributes are named `servo.…`; those that are None are left out.
    """
    tracer = _tracer()
    if tracer is None:
        yield _NONE
        return
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 (only who traces pays for it)

    kinds = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER}
    with tracer.start_as_current_span(
        name, context=_context(parent), kind=kinds[kind], attributes=_attributes(attributes)
    ) as begun:
        yield Current(begun)


def past_span(name: str, began: datetime, ended: datetime, *, parent: str | None = None, **attributes: Any) -> None:
    """A span of what nobody stood by: it began and ended at these moments."""
    tracer = _tracer()
    if tracer is None:
        return
    begun = tracer.start_span(
        name, context=_context(parent), attributes=_attributes(attributes), start_time=_nanoseconds(began)
    )
    begun.end(_nanoseconds(max(began, ended)))


def traceparent() -> str | None:
    """The present span, as another process can go on with it; None where nothing is traced."""
    if _tracer() is None:
        return None
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    return carrier.get(_HEADER)


def _context(parent: str | None) -> Context | None:
    return None if parent is None else _propagator().extract({_HEADER: parent})


def _propagator() -> TraceContextTextMapPropagator:
    from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415 (as above)

    return tracecontext.TraceContextTextMapPropagator()


def _attributes(given: Mapping[str, Any]) -> dict[str, Any]:
    return {f"servo.{name}": value for name, value in given.items() if value is not None}


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000


@cache
def _tracer() -> Tracer | None:
    """Made with the first span, once."""
    if not _wanted(os.environ):
        return None
    from opentelemetry import trace  # noqa: PLC0415 (as above)

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider) and not _set_up():
        return None
    try:
        own = version("servo")
    except PackageNotFoundError:
        own = ""
    return trace.get_tracer("servo", own)


def _wanted(environ: Mapping[str, str]) -> bool:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter:
        return exporter != "none"
    return any(environ.get(name) for name in _ENDPOINTS)


def _set_up() -> bool:
    """Let spans go where OTEL_* say."""
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() or "otlp"
    if exporter != "otlp":
        log.warning(
            "OTEL_TRACES_EXPORTER=%s is not known here: use otlp or none", exporter, extra={"action": "tracing"}
        )
        return False
    try:
        from opentelemetry import trace  # noqa: PLC0415 (as above)
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 (as above)
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 (as above)
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 (as above)
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 (as above)
    except ModuleNotFoundError as problem:
        log.warning(
            "OTEL_* ask for traces, and %s is not installed: pip install 'servo[otel]'",
            problem.name,
            extra={"action": "tracing"},
        )
        return False
    # Name, sampler, endpoint, headers, batches: all of it is read from OTEL_* by these classes.
    named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "servo"}
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    atexit.register(_end, provider.shutdown)
    _hear_of_trouble()
    return True


def _end(shutdown: Callable[[], None]) -> None:
    """Send what is left; who waits for the program is not to wait for a collector that is away."""
    ending = Thread(target=shutdown, name="servo-traces", daemon=True)
    ending.start()
    ending.join(_END_SECONDS)


def _hear_of_trouble() -> None:
    """What the exporter complains of is said once, in Servo's words: it tries again and again."""
    exporter = logging.getLogger("opentelemetry")
    exporter.addHandler(_Complaint(logging.WARNING))
    exporter.propagate = False


class _Complaint(logging.Handler):
    said = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self.said:
            self.said = True
            log.warning("traces may be lost: %.200s", record.getMessage(), extra={"action": "tracing"})

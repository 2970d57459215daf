"""A session for as long as somebody works: started when first needed, and anew when it was lost."""

from __future__ import annotations

from contextlib import ExitStack
from threading import Event, Lock, Thread
from typing import Self

from pyspark.sql import SparkSession

from servo.errors import SessionLost
from servo.execution import jvm
from servo.execution.call_session import current_call, worker_process
from servo.execution.settings import SparkSettings
from servo.execution.spark import own_sessions, session


class KeptSession:
    """Gives the session whenever it is called. Ends it with the block, if it was started here.

    `own`: this process is Servo's alone. Whatever asks for a session is given one with these settings, a JVM that hangs
    is killed, and no second JVM is started: Python objects of the first, such as functions that a module registered,
    would refer to others in the second. Then SessionLost is raised, and the process is to be replaced.
    """

    def __init__(self, settings: SparkSettings, *, own: bool = False) -> None:
        self._settings = settings
        self._own = own
        self._lock = Lock()
        self._held = ExitStack()
        self._process = ExitStack()
        self._jvm: object | None = None  # the first of this process

    def __call__(self) -> SparkSession:
        with self._lock:
            self._require_jvm()
            # A session that is there is taken once more before the former hold is given up, so that it does not end.
            held = ExitStack()
            spark = held.enter_context(session(self._settings, own=self._own))
            self._held.close()
            self._held = held
            self._jvm = self._jvm or jvm.process()
            return spark

    def _require_jvm(self) -> None:
        if self.is_used_up:
            raise SessionLost("the JVM of Spark has ended", hint="the worker is replaced, and the task tried again")

    def _may_start(self) -> bool:
        """Not inside a call, whose session is lost then: what it does next fails because of that."""
        if current_call() is not None:
            return False
        self._require_jvm()
        return True

    @property
    def is_used_up(self) -> bool:
        """Whether the JVM of this process has ended, or was given up."""
        return self._own and self._jvm is not None and (jvm.process() is not self._jvm or jvm.is_dead())

    def __enter__(self) -> Self:
        if self._own:
            self._process.enter_context(own_sessions(self._settings, self._may_start))
            self._process.enter_context(worker_process())
            stop = Event()
            self._process.callback(stop.set)
            Thread(target=jvm.watch, args=(stop,), name="spark-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._held.close()
        self._process.close()

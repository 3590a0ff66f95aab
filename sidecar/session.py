"""The Spark session of this process, the settings that hold for it, and what watches it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import weakref
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..alerting.incidents.alert import problem_of
from ..listener.connect.client import ConnectCallError, conf_of
from ..listener.spark.jvm import THROWN, reason_of
from ..listener.state.query import Query
from ..listener.state.state import has_name
from ..settings.loading import SPARK_PREFIX, load_settings
from ..settings.settings import Settings, SettingsError

if TYPE_CHECKING:
    from .sidecar import Sidecar

log = logging.getLogger("querypulse")

APP_NAME = "spark.app.name"
ANNOUNCE_SECONDS = 1.5
"""How long the end by SIGTERM may wait for its announcement."""


class NoSessionError(RuntimeError):
    """There is no active SparkSession to watch."""


def active_session() -> Any:
    """The session that is active on this thread, else the process's default session.

    Raises:
        NoSessionError: there is none.

    """
    spark = _known_session()
    if spark is None:
        raise NoSessionError("querypulse: no active SparkSession; use attach(spark)")
    return spark


def is_connect(spark: Any) -> bool:
    """Whether ``spark`` is a Spark Connect session, whose driver is another process."""
    return "connect" in type(spark).__module__.split(".")


def watched_by(spark: Any) -> Any:
    """What at most one sidecar watches: a SparkContext, or a Spark Connect session."""
    return spark if is_connect(spark) else spark.sparkContext


def is_stopped(watched: Any) -> bool:
    """Whether the application has stopped what ``watched_by`` returned."""
    if is_connect(watched):
        return bool(watched.client.is_closed)
    # PySpark drops its Java context in ``SparkContext.stop()``; there is no public way.
    return watched._jsc is None  # noqa: SLF001


def conf_reader(spark: Any) -> Callable[[str], str | None]:
    """A function that returns an entry of the session's conf by its name.

    Raises:
        ServerSilentError, ConnectCallError: the Spark Connect server does not answer.

    """
    if is_connect(spark):
        return conf_of(spark, "spark.").get
    return lambda name: spark.conf.get(name, None)


def settings_of(spark: Any, arguments: Mapping[str, object]) -> Settings:
    """The settings of all sources; the Spark conf counts where there is a session.

    Environment variables that are not allowed are logged and ignored.

    Raises:
        SettingsError: a setting from elsewhere is unknown or not allowed.

    """
    spark = spark if spark is not None else _known_session()
    conf = _conf_unless_refused(spark) if spark is not None else {}
    loaded = load_settings(arguments, os.environ, conf)
    for problem in loaded.problems:
        _warn_once(problem)
    return loaded.settings


@cache
def _warn_once(problem: str) -> None:
    log.warning("querypulse: %s (ignored; `querypulse check` lists all problems)", problem)


def app_name(settings: Settings, spark: Any) -> str:
    """The label ``app``: the setting, else the name of the application; warns of a generic one."""
    name: str
    if settings.app_name:
        name = settings.app_name
    elif is_connect(spark):
        name = conf_of(spark, APP_NAME).get(APP_NAME, "")
    else:
        name = spark.sparkContext.appName
    # The environment may hold bytes that are not valid UTF-8; JSON and HTTP may not.
    app = name.encode("utf-8", "replace").decode()
    if problem := problem_of(app):
        log.warning("querypulse: %s", problem)
    return app


def spark_ui_url(spark: Any) -> str:
    """The URL of the application's own Spark UI; empty when there is none or it is unknown."""
    try:
        url = spark.sparkContext.uiWebUrl
    except (*THROWN, OSError, TypeError, AttributeError):
        return ""
    return url if isinstance(url, str) and url.startswith(("http://", "https://")) else ""


def _conf_unless_refused(spark: Any) -> dict[str, str]:
    """The ``spark.querypulse.*`` entries of the session's conf, which has those of its application.

    It is empty where the platform refuses access, which must not end the job.
    """
    try:
        if is_connect(spark):
            return dict(conf_of(spark, SPARK_PREFIX))
        # Private: the public ``conf`` needs a few JVM calls for each of hundreds of entries.
        entries = spark._jsparkSession.conf().getAll().mkString("\0").split("\0")  # noqa: SLF001
        pairs = (entry.partition(" -> ") for entry in entries if entry.startswith(SPARK_PREFIX))
        return {name: text for name, _, text in pairs}
    except (*THROWN, OSError, TypeError, ConnectCallError) as error:
        log.warning("querypulse: the Spark conf cannot be read: %s", reason_of(error))
        return {}


def _known_session() -> Any:
    from pyspark.sql import SparkSession

    # The others are PySpark's defaults: a thread that has run nothing has no active session.
    classic = SparkSession.getActiveSession() or SparkSession._instantiatedSession  # noqa: SLF001
    # A process that uses Spark Connect has imported it; it may be impossible in another.
    module = sys.modules.get("pyspark.sql.connect.session")
    find = getattr(getattr(module, "SparkSession", None), "_get_default_session", None)
    return classic or (find() if find is not None else None)


# -- the queries that the application means -------------------------------------------------------


class Target(msgspec.Struct, frozen=True):
    """All queries of a name, or the one whose ``StreamingQuery`` has these ids."""

    name: str | None
    query_id: str = ""
    run_id: str = ""

    @property
    def is_one(self) -> bool:
        """Whether it is one query, also if another has its name."""
        return bool(self.query_id)

    @property
    def text(self) -> str:
        """How the application calls it."""
        return self.name or self.query_id

    def current(self, queries: Iterable[Query]) -> list[Query]:
        """Those of the name, or the one whose current run was given."""
        if self.is_one:
            return [query for query in queries if query.run_id == self.run_id]
        return [query for query in queries if has_name(query, self.text)]

    def find(self, queries: Sequence[Query]) -> list[Query]:
        """As ``current``; if that run is over or was never seen, the query that has its id."""
        current = self.current(queries)
        if current or not self.is_one:
            return current
        # One of another name that lost its checkpoint to this one has the same id.
        return [
            query
            for query in queries
            if query.query_id == self.query_id and query.name in (self.name, None)
        ]


def target_of(method: str, query: Any) -> Target:
    """What the application means by a query's name or by a ``StreamingQuery``.

    Raises:
        ValueError: it is neither; ``method`` was called with it.

    """
    if isinstance(query, str):
        return Target(query)
    if not all(hasattr(query, name) for name in ("id", "runId", "name")):
        kind = type(query).__name__
        raise ValueError(f"{method}: give a query's name or a StreamingQuery, not {kind}")
    return Target(query.name, str(query.id), str(query.runId))


# -- the open sidecars ---------------------------------------------------------------------------


class Registry:
    """At most one open sidecar for each SparkContext."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held from the search for a sidecar until a new one is recorded."""
        self._sidecars: weakref.WeakKeyDictionary[Any, Sidecar] = weakref.WeakKeyDictionary()
        self._forks = threading.local()
        self.was_signalled = False
        self.handles_signals = False
        """Whether the application has had a handler of its own for the end of the process."""
        """Whether SIGTERM has come, as far as our handler knows."""
        self._reports_death = self._has_reported = False
        """Whether a thread reports that the JVM has died; once it has, the process ends."""

    def find(self, context: Any) -> Sidecar | None:
        """The open sidecar of a SparkContext."""
        sidecar = self._sidecars.get(context)
        return None if sidecar is None or sidecar.closed else sidecar

    def require_none(self, context: Any) -> None:
        """Require that no open sidecar watches this SparkContext; an automatic one is closed.

        Those of SparkContexts that the application has stopped are closed: they would do so
        themselves a moment later, but the new one may need their port now. So are those of Spark
        Connect sessions that have ended: the new one takes over their incidents.

        Raises:
            SettingsError: another one watches it.

        """
        sidecar = self.find(context)
        if sidecar is not None and not sidecar.is_automatic:
            raise SettingsError("another sidecar watches this SparkContext: use or close that")
        if sidecar is not None:
            sidecar.close()
        for watched, stale in list(self._sidecars.items()):
            if is_stopped(watched) or stale.session_has_ended:
                stale.close(timeout=2.0)

    def remember(self, context: Any, sidecar: Sidecar) -> None:
        """Record the sidecar of a SparkContext."""
        self._sidecars[context] = sidecar

    def handle_termination(self) -> None:
        """Announce the end by SIGTERM while a sidecar is open, if SIGTERM has its default action.

        Only the main thread can set a handler; a handler of the application is left alone.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        if self._sidecars and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminate)
        elif not self._sidecars and self._handles_termination:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @property
    def _handles_termination(self) -> bool:
        return signal.getsignal(signal.SIGTERM) == self._terminate

    def note_handlers(self) -> None:
        """Note a handler of the application: it may be gone before the process ends.

        ``asyncio`` takes its handlers back when its loop ends, and so do context managers.
        """
        terminates = signal.getsignal(signal.SIGTERM)
        interrupts = signal.getsignal(signal.SIGINT)
        is_foreign = callable(terminates) and not self._handles_termination
        # PySpark's cancels the jobs, and raises KeyboardInterrupt as Python's does.
        of_pyspark = getattr(interrupts, "__module__", "").startswith("pyspark.")
        is_default = interrupts is signal.default_int_handler or of_pyspark
        self.handles_signals |= is_foreign or (callable(interrupts) and not is_default)

    def _terminate(self, number: int, _frame: object) -> None:
        """Announce the end, and then let the default action end the process.

        Where the JVM is dead already, as when YARN cleans up behind it, the end is not planned: the
        application goes on until that is reported.

        A handler of the application that calls this one, which it found in its place, decides the
        end itself.

        The main thread may hold any lock now, also one of ``threading``: so another thread works, a
        bare one, and the wait for it is short.
        """
        if self._reports_death:
            if self._has_reported:
                self._end_by(number)
            return
        self.was_signalled = True
        announced = allocate_lock()
        announced.acquire()
        start_new_thread(self._announce, (number, announced.release))
        announced.acquire(timeout=ANNOUNCE_SECONDS)
        if not self._reports_death:
            self._end_by(number)

    def _end_by(self, number: int) -> None:
        if signal.getsignal(number) == self._terminate:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _announce(self, number: int, announced: Callable[[], None]) -> None:
        sidecars = list(self._sidecars.values())
        try:
            # A lock that the main thread holds must not keep the report of a death from leaving.
            self._reports_death = any(sidecar.has_lost_jvm() for sidecar in sidecars)
            for sidecar in () if self._reports_death else sidecars:
                sidecar.announce_termination()
        finally:
            announced()
        if self._reports_death:
            self._report_death(number, sidecars)

    def _report_death(self, number: int, sidecars: Sequence[Sidecar]) -> None:
        """Report that the JVM has died, and let the signal end the process."""
        try:
            for sidecar in sidecars:
                sidecar.report_death()
        finally:
            self._has_reported = True
            if self._handles_termination:
                os.kill(os.getpid(), number)

    def before_fork(self) -> None:
        """Hold SIGTERM back: a child would lose one that comes before its Python runs."""
        signals = {signal.SIGTERM}
        self._forks.holds = self._handles_termination and not (
            signals & signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        )

    def after_fork(self, *, child: bool) -> None:
        """Let SIGTERM through; in a child it has its default action again."""
        if self._forks.holds and child:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._forks.holds:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def forget(self, sidecar: Sidecar) -> None:
        """Remove a sidecar, and with it the reference to its SparkContext."""
        for context, watching in list(self._sidecars.items()):
            if watching is sidecar:
                del self._sidecars[context]


SIDECARS = Registry()
os.register_at_fork(
    before=SIDECARS.before_fork,
    after_in_parent=partial(SIDECARS.after_fork, child=False),
    after_in_child=partial(SIDECARS.after_fork, child=True),
)

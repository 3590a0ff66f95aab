"""The Spark session of this process, and the settings that hold for it."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ..alerting.alert import problem_of
from ..listener.connect.client import ConnectCallError, conf_of
from ..listener.spark.jvm import THROWN, reason_of
from ..listener.state.query import Query
from ..listener.state.snapshot import DriverAttempt
from ..listener.state.state import has_name
from ..settings.loading import ENVIRONMENT_PREFIX, SPARK_PREFIX, Loaded, load_settings
from ..settings.settings import Settings, SettingsError

log = logging.getLogger("querypulse")

APP_NAME = "spark.app.name"
ENABLED_VARIABLE = f"{ENVIRONMENT_PREFIX}ENABLED"
CONNECT_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


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
    """Whether ``spark`` is a Spark Connect session."""
    return "connect" in type(spark).__module__.split(".")


def driver_session(spark: Any) -> Any:
    """The session through which ``spark``'s driver is watched.

    That of Spark Connect is a client, and its driver may be this very process, as in
    ``spark-pipelines run`` and ``remote("local")``: then it is the classic session here. Where the
    driver is another process, as where Spark cannot say (before 4.0), it is ``spark`` itself.
    """
    if not is_connect(spark):
        return spark
    from pyspark.sql import SparkSession

    try:
        # Its ``getActiveSession`` would return the client in such a process.
        classic = SparkSession._instantiatedSession  # noqa: SLF001
        is_here = classic is not None and _serves(classic, spark)
    except (*THROWN, OSError, TypeError, AttributeError):
        is_here = False
    return classic if is_here else spark


def _serves(classic: Any, client: Any) -> bool:
    """Whether the Connect server of a classic session's driver knows the client's session."""
    if is_stopped(classic.sparkContext):
        return False
    # Private, as is the JVM: no public way leads from a client to its driver.
    service = getattr(getattr(classic.sparkContext._jvm, CONNECT_SERVICE), "MODULE$")  # noqa: SLF001
    sessions = str(service.sessionManager().listActiveSessions().toString())
    return client._session_id in sessions  # noqa: SLF001 - public only from 4.0


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
    return _settings_of(load_settings(arguments, os.environ, conf))


def _settings_of(loaded: Loaded) -> Settings:
    for problem in loaded.problems:
        warn_once(f"{problem} (ignored; `querypulse check` lists all problems)")
    return loaded.settings


@cache
def warn_once(text: str) -> None:
    """Log a warning, unless this process has logged it before."""
    log.warning("querypulse: %s", text)


def settings_in_force(
    settings: Settings | None, arguments: Mapping[str, object], spark: Any
) -> Settings:
    """The settings that were given, or those of all sources.

    ``QUERYPULSE_ENABLED=false`` counts for a given record, too: it is for a user's own tests, which
    run the job unchanged.

    Raises:
        SettingsError: both were given, or as ``settings_of``.

    """
    if settings is None:
        return settings_of(spark, arguments)
    if not isinstance(settings, Settings):
        given = type(settings).__name__
        raise SettingsError(f"'settings' takes a Settings record, given {given}; give keywords")
    if arguments:
        raise SettingsError(f"give 'settings' or keywords, not both: {', '.join(arguments)}")
    switch = {key: os.environ[key] for key in (ENABLED_VARIABLE,) if key in os.environ}
    switched = _settings_of(load_settings({}, switch, {}))
    if switched.enabled:
        return settings
    off = msgspec.structs.replace(settings, enabled=False)
    msgspec.structs.force_setattr(off, "origins", {**settings.origins, **switched.origins})
    return off


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


def scheduler_mode(spark: Any) -> str:
    """``spark.scheduler.mode`` of the application; empty where it is not known."""
    if is_connect(spark):
        return ""
    try:
        return str(conf_reader(spark)("spark.scheduler.mode") or "FIFO").upper()
    except THROWN:
        return ""


def spark_ui_url(spark: Any) -> str:
    """The URL of the application's own Spark UI; empty when there is none or it is unknown.

    On YARN it is that of YARN's proxy, to which the UI redirects everybody.
    """
    try:
        context = spark.sparkContext
        url = context.uiWebUrl
        # Private: YARN adds to a client's conf after the start, and the public one is a copy.
        proxies = _yarn_proxies(context._conf)  # noqa: SLF001
    except (*THROWN, OSError, TypeError, AttributeError):
        return ""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        return ""
    return proxies.partition(",")[0] or url


def _yarn_proxies(conf: Any) -> str:
    """The URLs of the application at YARN's proxies, comma-separated; empty elsewhere."""
    for name in conf.get(UI_FILTERS, "").split(","):
        if name.strip().endswith(YARN_FILTER):
            return str(conf.get(f"spark.{name.strip()}.param.PROXY_URI_BASES", ""))
    return ""


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


# -- where the driver runs, and who starts it again ---------------------------------------------

Conf = Callable[[str], str | None]

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
IN_KUBERNETES = "KUBERNETES_SERVICE_HOST"
"""Kubernetes sets it in every container."""
CLUSTER_ID = "spark.databricks.clusterUsageTags.clusterId"
CLUSTER_NAME = "spark.databricks.clusterUsageTags.clusterName"
JOB_ID = "spark.databricks.job.id"
JOB_CLUSTER = re.compile(r"job-\d+-run-\d+")
"""How Databricks names the cluster of a job's run."""
ATTEMPT = "spark.app.attempt.id"
UI_FILTERS = "spark.ui.filters"
YARN_FILTER = ".AmIpFilter"
"""The filter of Spark's UI on YARN: Hadoop's until Spark 3.5, then Spark's own."""
CLUSTER_MODE = ("spark.submit.deployMode", "cluster")


def place_of(spark: Any, conf: Conf, environment: Mapping[str, str] = os.environ) -> str:
    """Return the host or pod, the process and Spark's application id, as far as they are known."""
    host = socket.gethostname()
    parts = [f"host {host}"] if host else []
    if IN_KUBERNETES in environment:
        parts = [f"pod {host}"]
        with suppress(OSError, ValueError):
            parts.append(f"namespace {_NAMESPACE.read_text('utf-8').strip()}")
    parts.append(f"process {os.getpid()}")
    cluster = conf(CLUSTER_ID)
    if cluster:
        parts.append(f"cluster {cluster}")
    application = _application_id(spark)
    if application:
        parts.append(f"application {application}")
    return ", ".join(parts)


def _application_id(spark: Any) -> str:
    """Return what ``yarn logs -applicationId`` and the history server call it; empty if unknown."""
    try:
        application = spark.sparkContext.applicationId
    except (*THROWN, OSError, TypeError, AttributeError):
        # A client of Spark Connect has no application of its own.
        return ""
    return application if isinstance(application, str) else ""


def attempt_of(spark: Any, conf: Conf) -> DriverAttempt | None:
    """Return which attempt of its application this driver is; None where YARN starts no other.

    ``SparkContext`` sets the number in YARN's cluster mode.
    """
    application = _application_id(spark)
    number = conf(ATTEMPT) or ""
    if not application or not number.isdecimal():
        return None
    return DriverAttempt(application, int(number), f"host {socket.gethostname()}")


def restarted_by(conf: Conf, environment: Mapping[str, str] = os.environ) -> str:
    """Return who starts the driver again after it has failed; empty if that is not known.

    Spark's documentation: "Running Spark on YARN" (``spark.yarn.maxAppAttempts``), "Spark
    Standalone Mode" (``--supervise``).
    """
    mode, in_cluster = CLUSTER_MODE
    is_in_cluster = conf(mode) == in_cluster
    master = conf("spark.master") or ""
    if conf(CLUSTER_ID):
        is_job = conf(JOB_ID) or JOB_CLUSTER.match(conf(CLUSTER_NAME) or "")
        return "the Databricks job, if it has retries or is continuous" if is_job else ""
    if IN_KUBERNETES in environment:
        return "Kubernetes or the Spark operator, if the restart policy of the job says so"
    if master == "yarn" and is_in_cluster:
        attempts = conf("spark.yarn.maxAppAttempts")
        if attempts == "1":
            return "nobody: spark.yarn.maxAppAttempts is 1"
        most = f"spark.yarn.maxAppAttempts, {attempts}" if attempts else "its max-attempts"
        return f"YARN, up to {most}"
    if master.startswith("spark://") and is_in_cluster and conf("spark.driver.supervise") == "true":
        return "the standalone master (spark.driver.supervise)"
    return ""


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
            return [query for query in queries if query.run.run_id == self.run_id]
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

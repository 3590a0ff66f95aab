"""Finds the cause of a failure in Spark's exception text.

A query that fails in a Python ``foreachBatch`` reports a Java exception that wraps a Python
traceback, which may wrap another Java exception. The innermost one is the cause. A UDF's traceback
is in the message likewise.
"""

from __future__ import annotations

import re

import msgspec

from ..core.redaction import redact
from .python_frames import is_library

HEAD = "Traceback (most recent call last):"
MAX_LINES = 8
MAX_CHARACTERS = 1200
MAX_TEXT_CHARACTERS = 64 * 1024
"""Only the end of a longer text is read, where the innermost traceback is."""
_FRAME = re.compile(r'[ \t]*File "([^"\n]{1,500})", line ([0-9]{1,9}), in ([^\n]{1,200})')
# Executors have their own installations, in other places than the driver's.
_INSTALLED = re.compile(r"[/\\](?:site-packages|dist-packages|python3(?:\.\d+)?|pyspark|py4j)[/\\]")
_DEMO = re.compile(r"[/\\]querypulse[/\\]commands[/\\]demo[/\\]pipeline\.py$")
"""The demo's job, which an installation has among its packages."""
_NOT_CODE = re.compile(r"[ \t]*[\^~][ \t^~]*$")


class RaisedAt(msgspec.Struct, frozen=True):
    """The innermost line of the user's code and the last lines of the traceback, redacted.

    The traceback omits library frames, unless there are no others.
    """

    line: str = ""
    """``/job.py:12 in write``."""
    traceback: str = ""


def raised_at(exception: str) -> RaisedAt:
    """Find the innermost traceback with a line of the user's code; empty if there is none."""
    last: list[list[str]] = []
    for text in reversed(exception[-MAX_TEXT_CHARACTERS:].split(HEAD)[1:]):
        frames = _frames(text)
        last = last or frames
        users = [frame for frame in frames if _is_users(frame)]
        if users:
            return RaisedAt(redact(_place(users[-1])), _shown(users))
    return RaisedAt("", _shown(last))


def _frames(text: str) -> list[list[str]]:
    """The lines of each frame at the start of a text, the innermost last."""
    frames: list[list[str]] = []
    for line in text.splitlines()[1:]:
        if (match := _FRAME.match(line)) is not None:
            frames.append([match.group().strip()])
        elif not line[:1].isspace():
            break
        elif frames and _NOT_CODE.match(line) is None and line.strip():
            frames[-1].append(f"  {line.strip()}")
    return frames


def _is_users(frame: list[str]) -> bool:
    path = _place(frame).rpartition(":")[0]
    is_installed = is_library(path) or _INSTALLED.search(path) is not None
    return not is_installed or _DEMO.search(path) is not None


def _place(frame: list[str]) -> str:
    """``/job.py:12 in write``."""
    return _FRAME.sub(r"\1:\2 in \3", frame[0])


def _shown(frames: list[list[str]]) -> str:
    """The last lines of the frames, bounded and redacted."""
    lines = [line for frame in frames for line in frame][-MAX_LINES:]
    return redact("\n".join(lines))[-MAX_CHARACTERS:]


NAME_CHARACTERS = 100
MESSAGE_CHARACTERS = 1500
HEADLINE_CHARACTERS = 200
_GENERIC = frozenset({"FOREACH_BATCH_USER_FUNCTION_ERROR", "PYTHON_EXCEPTION", "STREAM_FAILED"})
_CLASS_AND_MESSAGE = re.compile(r"\s*(?:Caused by: |: )?([A-Za-z_][\w.$]{0,200})(?:: (.*))?\s*")
_SPARK_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]{2,100})\]")
# Spark's scheduler names the failed task before it quotes the error of the task.
_FAILED_TASK = re.compile(
    r"(?:SparkException: )?Job aborted due to stage failure: .{0,500}? executor [^)]{0,200}\): "
)
_PART = r"(?:`[^`\n]{1,300}`|[\w-]{1,100})"
# A single unquoted word may be any word: "the Delta table has been changed".
_NAMED = re.compile(rf"\b(?:[Tt]able|view) ({_PART}(?:\.{_PART}){{1,4}}|`[^`\n]{{1,300}}`)")
# Errors of queries whose SparkContext stops while they run, seen on Spark 4.3: the scheduler
# cancels jobs, or parts of Spark are already null.
_CONTEXT_STOPPED = re.compile(
    r"SparkContext was shut ?down|stopped SparkContext|SparkContext has been shut ?down"
    r"|RpcEnv already stopped|RpcEnvStoppedException|Could not find CoarseGrainedScheduler"
    r"|because the return value of \\?\"org\.apache\.spark\.[\w.$]+\(\)\\?\" is null"
    r"|Shutdown in progress|java\.lang\.InterruptedException|RejectedExecutionException"
)


SESSION_ENDED = "CONNECT_SESSION_ENDED"
"""The error class of runs that have ended with their Spark Connect session; Spark has none."""


class Failure(msgspec.Struct, frozen=True):
    """Why a run failed: bounded names and a redacted message."""

    error_class: str
    """Spark's error condition if there is one, else the exception's name."""
    message: str
    exception: str = ""
    """The exception's name, without its package."""
    table: str = ""
    """The table that the message names."""
    place: str = ""
    """What other queries may need, too: the host, table, bucket or folder that it names."""
    raised_at: RaisedAt = RaisedAt()
    """The line of Python that raised it, if there is one."""

    @property
    def reason(self) -> str:
        """The class and the first line of the message, which may start with a condition."""
        first_line = self.message.partition("\n")[0]
        says_class = first_line.startswith(f"[{self.error_class}]")
        name = (self.exception if says_class else "") or self.error_class
        return f"{name}: {first_line}" if first_line else name

    @property
    def headline(self) -> str:
        """The exception and its table; without a table, the reason, shortened."""
        name = self.exception or self.error_class
        if self.table:
            return f"{name} on table {self.table}"
        reason = self.reason
        return reason if len(reason) <= HEADLINE_CHARACTERS else f"{reason[:HEADLINE_CHARACTERS]}…"


def describe_failure(exception: str, error_class: str | None = None) -> Failure:
    """Find the cause in Spark's exception text.

    ``error_class`` is Spark's (``errorClassOnException``) and takes precedence, unless it only
    says that user code failed.
    """
    _, traceback, python = exception.rpartition(HEAD)
    cause = _python_cause(python) if traceback else _java_cause(exception)
    raised, message = _split(cause)
    name = raised
    message = message[:MESSAGE_CHARACTERS].strip()
    condition = _SPARK_CONDITION.match(message)
    if error_class and error_class not in _GENERIC:
        name = error_class
    elif condition and condition.group(1) not in _GENERIC:
        name = condition.group(1)
    causes = [line for line in exception.splitlines() if line.startswith("Caused by: ")]
    place = next(filter(None, map(place_from_error, (cause, *causes[-MAX_CAUSES:]))), "")
    return Failure(
        error_class=_bounded(name) or "UnknownError",
        message=message,
        exception=_bounded(raised),
        table=table_from_error(message),
        place=place,
        raised_at=raised_at(exception),
    )


def died_of_stopped_context(exception: str) -> bool:
    """Whether the exception only shows that the SparkContext of a healthy query stopped."""
    return _CONTEXT_STOPPED.search(exception) is not None


def _bounded(name: str) -> str:
    return redact(name)[:NAME_CHARACTERS]


def _python_cause(traceback: str) -> str:
    """The text between the frames, which are all indented, and the Java stack below it."""
    lines = traceback.splitlines()[1:]
    start = next((i for i, line in enumerate(lines) if line and not line[0].isspace()), None)
    if start is None:
        return ""
    text = _until_java_stack(lines[start:])
    if text.startswith("py4j.protocol.Py4JJavaError") and "\n: " in text:
        return _java_cause(text.partition("\n: ")[2])
    return text


def _java_cause(text: str) -> str:
    text = _until_java_stack(text.splitlines())
    failed_task = _FAILED_TASK.search(text)
    return text[failed_task.end() :] if failed_task is not None else text


def _until_java_stack(lines: list[str]) -> str:
    kept = []
    for line in lines:
        if line.startswith(("\tat ", "Caused by: ", "\t... ", " SQLSTATE: ")):
            break
        kept.append(line)
    return "\n".join(kept).strip()


def _split(text: str) -> tuple[str, str]:
    # Redact before splitting: a secret is recognised only together with its name.
    text = redact(text)
    first, newline, rest = text.partition("\n")
    match = _CLASS_AND_MESSAGE.fullmatch(first)
    if match is None:
        return "", text
    message = (match.group(2) or "") + newline + rest
    return match.group(1).rpartition(".")[2].rpartition("$")[2], message


def table_from_error(message: str) -> str:
    """The first table in the message, as written there; empty if there is none.

    Delta Lake 4.4 names the table of a conflict (``delta-error-classes.json``): "a concurrent
    MERGE added data to table spark_catalog.fleet.alerts committed at version 7". A table without a
    catalog name is ``delta.`file:/path```. Spark quotes names: "The table or view `a`.`b` cannot be
    found".
    """
    table = _NAMED.search(message)
    return table.group(1) if table is not None else ""


# -- place --------------------------------------------------------------------------------------
# What failed, in the words of many clients: a host, a table, a bucket, or the folder of a mount.

MAX_CAUSES = 10
_HOST = r"(?P<host>[A-Za-z0-9][\w.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])"
_PORT = r"(?P<port>\d{2,5})\b"
_PEER = r"(?:(?:the |remote )?(?:host|node|server|broker) )?"
_FAILS = (
    r"(?:\[Errno -?\d+\] )?(?:(?:[Cc]onnection )?(?:refused|timed out|reset|disconnected"
    r"|unreachable|not reachable)|[Ff]ailed to connect|\(id: )"
)
_AUTHORITY = r"(?P<host>[^\s/\\'\"<>,;?#()\[\]]{1,300})"
_ADDRESSES = tuple(
    re.compile(pattern)
    for pattern in (
        # Hadoop's RPC: Call From driver/10.0.0.1 to store:8020 failed on connection exception.
        rf'\bto "?{_HOST}"?:{_PORT} failed',
        rf'destination host is: "?{_HOST}"?:{_PORT}',
        # Java's InetSocketAddress: store/10.0.0.7:9000, store/<unresolved>:9000, /10.0.0.7:9000.
        rf"(?<![\w.-]){_HOST}/(?:<unresolved>|[0-9.]{{7,15}}|\[?[0-9A-Fa-f:]{{2,45}}\]?):{_PORT}",
        rf"(?<![\w.-])/(?P<host>[0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{3}}):{_PORT}",
        # urllib3, and clients of databases.
        rf"\bhost='{_HOST}', port={_PORT}",
        rf"\b(?:host|server(?: at)?) \"?{_HOST}\"?(?: \([^)\n]{{1,60}}\))?, port {_PORT}",
        rf"\bserver (?:on|at) '{_HOST}(?::{_PORT})?'",
        rf"\b[Cc]onnect(?:ion|ing)? (?:to|with) {_PEER}['\"]?{_HOST}:{_PORT}",
        rf"(?:\bipv4:|(?<![\w.:/=-])){_HOST}:{_PORT}['\")]?[\s:.,]{{0,3}}{_FAILS}",
        # Names that do not resolve.
        rf"UnknownHostException: \"?(?!null\b){_HOST}",
        rf"\b(?:[Ff]ailed to|[Cc]ould not) resolve (?:host:? )?['\"]?{_HOST}",
    )
)
# Redaction hides a requested URL as a whole, as its path may be a secret.
_HIDDEN_URL = re.compile(r"(?i)\burl: (https?://[^\s/?#@'\"<>]{1,300})(?:[/?#][^\s@]*)?(?=\s|$)")
_USER_INFO = re.compile(r"(?<=://)[^@\s]*@")
# Each connection has its own port on this side.
_OWN_END = re.compile(r"\blocal=\S+")
# A link to documentation is no place.
_REQUESTED = re.compile(
    r"\b(?:[Uu][Rr][Ll]|endpoint|PUT|GET|POST|HEAD|DELETE|[Cc]onnect(?:ion|ing)? to|[Rr]equest to)"
    rf"(?: URL)?[:,]?\s{{0,3}}['\"]?https?://{_AUTHORITY}"
)
_URL = re.compile(rf"\b(?!https?:|file:|spark:)[a-z][a-z0-9+-]{{1,30}}://{_AUTHORITY}")
_FOLDER = re.compile(
    r"(?:\b(?:file|dbfs):/{1,3}|\[Errno -?\d+\] [^\n]{0,80}'/"
    r"|(?:FileNotFoundException|FileSystemException|AccessDeniedException|IOException): /)"
    r"(?P<folder>[^\s/'\":,]{1,100}/[^\s/'\":,]{1,100})/"
)
_OUT_OF_ORDER = re.compile(
    r"(?i)time(?:d[ -]|-)?out|\bconnect(?:ion|ing|exception)?\b|unreachable|unavailable|refused"
    r"|\breset\b|does not (?:answer|respond)|denied|forbidden|unauthori[sz]ed|permission|expired"
    r"|credential|throttl|slow ?down|\bbusy|too many requests|\b(?:40[13]|429|50[0234])[),]"
    r"|server error|no space|quota|read-only|input/output error|stale file|to 0 nodes|safe mode"
)
"""Whole services, buckets and folders are what two defects in single files have in common, too:
they count only where the error says that they do not answer, or grant no access."""


def place_from_error(text: str) -> str:
    """What an error names that other queries may need, too; empty if it names nothing.

    ``text`` is the exception's name and its message. Numbers, ids and files in it do not count: of
    a URL only the host or the bucket does, of a local path its first two folders (a mount).
    """
    text = redact(_HIDDEN_URL.sub(r"url \1", text))[:MESSAGE_CHARACTERS]
    text = _OWN_END.sub("", _USER_INFO.sub("", text))
    for pattern in _ADDRESSES:
        if (found := pattern.search(text)) is not None:
            parts = found.groupdict()
            return _spelled(":".join(filter(None, (parts["host"], parts.get("port")))))
    if table := table_from_error(text):
        return _spelled(table.replace("`", "").removeprefix("spark_catalog."))
    if _OUT_OF_ORDER.search(text) is None:
        return ""
    if (found := _REQUESTED.search(text) or _URL.search(text)) is not None:
        return _spelled(found["host"])
    folder = _FOLDER.search(text)
    return "" if folder is None else f"/{folder['folder']}"


def _spelled(place: str) -> str:
    return place.rstrip(".").lower()

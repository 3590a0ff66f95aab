"""``querypulse watch``: from arguments and settings to the threads of a watcher, and to its end."""

from __future__ import annotations

import argparse
import logging
import math
import signal
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ..alerting.alert import Incident, incident_labels
from ..alerting.delivery.deliveries import Notifier
from ..alerting.finding import WHOLE_DRIVER
from ..alerting.redaction import EvaluationRedactor
from ..alerting.silences import SilenceStore, why_muted
from ..alerting.words.messages import Guidance
from ..core.certificates import CertificateError, load_authorities, load_own
from ..core.files import FileLoop
from ..core.guard import Guard
from ..core.redaction import RedactedLog
from ..core.secret import Secret
from ..core.threads import Deadline
from ..exporter.pages import Content, Reply
from ..exporter.server import HttpServer
from ..recording.lines import SeenFrom
from ..settings.links import external_url, guidance
from ..settings.loading import load_strictly
from ..settings.receivers import is_taken
from ..settings.settings import Settings, SettingsError
from ..sidecar import assemble
from ..sidecar.black_box import BlackBox, about_process
from .alerts import APP, DriverAlerts
from .client import Access, Endpoint
from .page import pages_of
from .peers import (
    KEEP_ENDED_SECONDS,
    Leadership,
    PeerPoller,
    new_rank,
    peer_page,
)
from .targets import Targets, endpoint_of, receiver_hosts
from .tracker import TERMINATED_AFTER_SECONDS, TargetTracker
from .watcher import Watcher

log = logging.getLogger("querypulse")


TIMES = {
    "interval": (0.1, "time between polls"),
    "gone_after": (1.0, "how long a driver may not answer"),
    "terminated_after": (1.0, "the same for a driver that was ended by a signal"),
}
"""The shortest allowed time, and the help text."""
MORE = {
    "targets": "a file of such URLs, one per line; reread in every interval",
    "webhook_url_file": "contains the URL of a webhook, if the settings name no receiver",
    "token_file": "contains the bearer token of the drivers",
    "ca_file": "the CA certificates that verify the drivers",
    "client_cert_file": "our certificate, for drivers that require one",
    "client_key_file": "its key",
}


HTTP_PORT = 9700
"""So far below the drivers' that no driver on this machine tries it next, nor the other way."""


class WatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the command line; times in seconds."""

    urls: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()
    peer: tuple[str, ...] = ()
    targets: str | None = None
    webhook_url_file: str | None = None
    interval: float = 5.0
    gone_after: float = 15.0
    terminated_after: float = TERMINATED_AFTER_SECONDS
    token_file: str | None = None
    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None
    http_port: int = HTTP_PORT


def add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the fields of a ``WatchRequest``."""
    defaults = WatchRequest()
    parser.add_argument(
        "urls", nargs="*", metavar="URL", help="a driver's server: HOST, or http://HOST:9719"
    )
    parser.add_argument(
        "--dns",
        action="append",
        default=[],
        metavar="URL",
        help="the same for every address of the host name; drivers are identified by their app",
    )
    parser.add_argument(
        "--forget",
        action="append",
        default=[],
        metavar="APP",
        help="it will not come back: end what an earlier watcher left open about it",
    )
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="URL",
        help="the page of another watcher of the same drivers: only one of them notifies",
    )
    for name, text in MORE.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="FILE", help=text)
    parser.add_argument(
        "--http-port",
        type=int,
        default=defaults.http_port,
        metavar="PORT",
        help="where it serves the page of all drivers (%(default)d); 0: any, -1: nowhere",
    )
    for name, (least, text) in TIMES.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=seconds_from(least),
            default=getattr(defaults, name),
            metavar="SECONDS",
            help=f"{text} (%(default)g)",
        )


def seconds_from(least: float) -> Callable[[str], float]:
    """The type of an argument in seconds, ``least`` or more."""

    def seconds(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"seconds, {least:g} or more, given {text!r}")
        return value

    return seconds


# -- command ----------------------------------------------------------------------------------


FILES_SECONDS = 1.0
CLOSING_SECONDS = 6.0
UNLABELLED = (
    "querypulse: no receiver takes critical incidents with only the labels of these settings (see "
    "`match` and `severities`): nobody is notified of a driver that has never answered"
)
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def watch(request: WatchRequest, environment: Mapping[str, str]) -> int:
    """Watch until SIGTERM or SIGINT, then return 0. The log goes to standard error.

    Raises:
        SettingsError: a setting, a file or a URL cannot be used, or there is no receiver or
            nothing to watch.

    """
    settings = _settings(request, environment)
    redacting, guard = assemble.make_redactor(settings), Guard()
    silencing = SilenceStore(settings.silence_file, guard)
    access = access_of(request, settings)
    black_box = _black_box(settings, redacting, guard)
    words = replace(guidance(settings).redacted(redacting.text), recordings=black_box.place)
    evaluate = make_alerts(request, settings, words)
    peers = peers_of(request)
    leadership = Leadership(new_rank(), [peer.url for peer in peers], request.gone_after)
    notifier = make_notifier(settings, evaluate, black_box, leadership, guard)
    watcher = Watcher(
        Targets(request.urls, request.targets, request.dns),
        evaluate,
        leadership,
        notifier,
        guard,
        access=access,
        hosts=receiver_hosts(settings),
        muted=lambda alert: why_muted(alert, silencing(), time.time()),
        record=black_box.offer,
    )
    _begin_log(settings, redacting)
    ended = _ended_by_signal()
    own = pages_of(lambda: watcher.seen) | peer_page(leadership, notifier, watcher.is_alive)
    server, token = make_server(request, settings, watcher, own, guard)
    pollers = [
        PeerPoller(peer, Access(token, access.context), leadership.interval, watcher.hear, guard)
        for peer in peers
    ]
    read_again = partial(_read_again, redacting, (access.token, token), server)
    files = FileLoop("secret-files", read_again, FILES_SECONDS, guard)
    for part in (files, silencing, black_box, notifier, watcher):
        part.start()
    for poller in pollers:
        poller.start()
    ended.wait()
    deadline = Deadline(CLOSING_SECONDS)
    watcher.close(deadline.left / 3)
    notifier.flush(Deadline(deadline.left / 2))
    if pollers:
        # The peer learns what was sent last; a second signal ends this.
        ended.clear()
        ended.wait(2 * leadership.interval)
    if server is not None:
        server.close()
    notifier.close(deadline)
    black_box.close(deadline.left)
    for poller in pollers:
        poller.stop()
    silencing.stop()
    files.end()
    return 0


def _settings(request: WatchRequest, environment: Mapping[str, str]) -> Settings:
    file = request.webhook_url_file
    arguments = {} if file is None else {"webhook_url_file": file, "webhook_url": None}
    return load_strictly(arguments, environment)


def _black_box(settings: Settings, redacting: EvaluationRedactor, guard: Guard) -> BlackBox:
    about = about_process(settings, APP, "", SeenFrom.WATCH)
    folder = assemble.recordings_folder(settings, None)
    return BlackBox(about, guard, redact=redacting.text, folder=folder)


def make_alerts(request: WatchRequest, settings: Settings, words: Guidance) -> DriverAlerts:
    """What opens an incident for each driver that is down."""
    times = (request.gone_after, request.interval, request.terminated_after)
    return DriverAlerts(
        TargetTracker(*times, settings.labels),
        resolve_after_seconds=settings.resolve_after_seconds,
        repeat_interval_seconds=settings.repeat_interval_seconds,
        guidance=words,
        forgotten=request.forget,
    )


def peers_of(request: WatchRequest) -> list[Endpoint]:
    """The other watchers.

    Raises:
        SettingsError: a URL is not one, or the peers could not read from this watcher.

    """
    peers = [endpoint_of(url, "--peer", HTTP_PORT) for url in dict.fromkeys(request.peer)]
    if peers and request.http_port < 0:
        raise SettingsError("--peer needs --http-port: there the peer reads what was sent")
    return peers


def _ended_by_signal() -> threading.Event:
    """What is set once a signal ends the watcher."""
    ended = threading.Event()
    for number in ENDING_SIGNALS:
        signal.signal(number, lambda *_: ended.set())
    return ended


def _begin_log(settings: Settings, redacting: EvaluationRedactor) -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    log.addFilter(RedactedLog(redacting.text))
    if not is_taken(settings, incident_labels(APP, WHOLE_DRIVER, settings.labels)):
        log.warning(UNLABELLED)


def make_notifier(
    settings: Settings,
    evaluate: DriverAlerts,
    black_box: BlackBox,
    leadership: Leadership,
    guard: Guard,
) -> Notifier:
    """The notifier of the watcher, as in a driver; while a peer leads, it holds what is due.

    Raises:
        SettingsError: a receiver cannot be used, or there is none.

    """
    receivers = assemble.make_receivers(settings)
    if not receivers:
        raise SettingsError("watch: no receiver: give --webhook-url-file, or configure a receiver")

    def restore(incidents: tuple[Incident, ...]) -> None:
        evaluate.restore(incidents, time.monotonic())
        black_box.inherit(incidents)

    return assemble.make_notifier(
        settings,
        APP,
        guard,
        receivers,
        restore=restore,
        heartbeat=assemble.make_heartbeat(settings, guard),
        on_attempt=black_box.attempted,
        is_held=lambda receiver: not leadership.leads(time.monotonic(), receiver),
        keep_ended_seconds=KEEP_ENDED_SECONDS if leadership.has_peers else 0.0,
    )


def make_server(
    request: WatchRequest,
    settings: Settings,
    watcher: Watcher,
    own: Mapping[str, Callable[[], Reply]],
    guard: Guard,
) -> tuple[HttpServer | None, Secret | None]:
    """The server of the page, which listens, and its token; None if it is off or cannot listen.

    Raises:
        SettingsError: the token or a certificate cannot be read.

    """
    settings = replace(settings, http_port=request.http_port)
    token, tls = assemble.http_access(settings)
    refused = assemble.refused_address(settings)
    if refused:
        log.error("querypulse: no page of all drivers: %s", refused)
    if settings.http_port < 0 or refused:
        return None, token
    content = Content(
        published=lambda: None,
        alive=watcher.is_alive,
        own=own,
    )
    server = HttpServer(
        settings.http_host,
        settings.http_port,
        content,
        guard,
        token=lambda: None if token is None else token.known,
        tls=tls,
        external_name=urlsplit(external_url(settings)).hostname,
    )
    try:
        server.start()
    except OSError as error:
        log.error("querypulse: no page of all drivers: %s: %s", server.url, error)  # noqa: TRY400
        return None, token
    log.info("querypulse: the page of all drivers is %s", server.url)
    return server, token


def _read_again(
    redacting: EvaluationRedactor, tokens: Sequence[Secret | None], server: HttpServer | None
) -> None:
    """Read secrets in files again: they may be rotated. In a separate thread: a mount may hang."""
    redacting.refresh()
    for token in tokens:
        if token is not None:
            token.reveal()
    if server is not None:
        server.renew()


def access_of(request: WatchRequest, settings: Settings) -> Access:
    """Token and certificates of the request.

    Raises:
        SettingsError: a file cannot be read or used.

    """
    token = assemble.secret_in(request.token_file, "--token-file", settings)
    if request.client_key_file is not None and request.client_cert_file is None:
        raise SettingsError("--client-key-file needs --client-cert-file")
    try:
        if request.ca_file is not None:
            load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), request.ca_file, "--ca-file")
        context = ssl.create_default_context(cafile=request.ca_file)
        if request.client_cert_file is not None:
            names = ("--client-cert-file", "--client-key-file")
            load_own(context, request.client_cert_file, request.client_key_file, names)
    except CertificateError as error:
        raise SettingsError(str(error)) from None
    return Access(token, context)

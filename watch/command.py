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
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ..alerting.alert import Alert, Incident, incident_labels
from ..alerting.delivery.deliveries import Notifier
from ..alerting.evaluate import Evaluation
from ..alerting.finding import WHOLE_DRIVER
from ..alerting.incidents.lifecycle import Evaluated
from ..alerting.redaction import EvaluationRedactor
from ..alerting.silences import SilenceStore, why_muted
from ..core.certificates import CertificateError, load_authorities, load_own
from ..core.files import FileLoop
from ..core.guard import Guard
from ..core.redaction import RedactedLog
from ..core.secret import Secret
from ..core.threads import Deadline, Loop
from ..exporter.pages import RETURN_SECONDS, WAIT_SECONDS, Content, Notice, Reply
from ..exporter.server import HttpServer
from ..listener.state.snapshot import Snapshot
from ..recording.lines import SeenFrom
from ..settings.links import external_url, guidance
from ..settings.loading import load_strictly
from ..settings.receivers import is_taken
from ..settings.settings import Settings, SettingsError
from ..sidecar import assemble
from ..sidecar.black_box import BlackBox, about_process
from ..sidecar.runtime import ALIVE_SECONDS
from .alerts import APP, DriverAlerts
from .client import Access, Client, Endpoint, NoAnswer, await_notice, poll, reported
from .fleet import Seen
from .page import pages_of
from .peers import (
    KEEP_ENDED_SECONDS,
    Leadership,
    PeerPage,
    PeerPoller,
    check_peers,
    new_rank,
    peer_page,
)
from .targets import Host, Targets, answers, endpoint_of, polled, receiver_hosts
from .tracker import TERMINATED_AFTER_SECONDS, TargetTracker

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


# -- driver poller ----------------------------------------------------------------------------
# Polls one endpoint: one thread polls, another waits for the shutdown notice.


REST_SECONDS = 1.0
DISPLACED_SECONDS = RETURN_SECONDS / 2
"""How soon to ask again after another watcher took this one's place."""


Observation = Callable[[TargetTracker], None]
"""What a thread has found out, for the thread that owns the tracker to apply."""


class DriverPoller:
    """Passes every poll and the shutdown notice to ``report``, from its own threads, at once."""

    def __init__(
        self,
        endpoint: Endpoint,
        access: Access,
        interval_seconds: float,
        report: Callable[[Observation], None],
        guard: Guard,
    ) -> None:
        self._endpoint = endpoint
        self._interval = interval_seconds
        self._report = report
        self._polling = Client(endpoint, access)
        self._waiting = Client(endpoint, access)
        self._poll_now = threading.Event()
        self._loops = [
            Loop("poll", self._poll, guard),
            Loop("await", self._await_shutdown_notice, guard),
        ]
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        """End soon; running requests are cut."""
        for loop in self._loops:
            loop.stop()
        self._poll_now.set()
        self._polling.cut()
        self._waiting.cut()

    def _poll(self) -> None:
        seen = poll(self._polling)
        self._report(lambda tracker: tracker.polled(self._endpoint, seen))
        self._poll_now.wait(self._interval)
        self._poll_now.clear()

    def _await_shutdown_notice(self) -> None:
        began = time.monotonic()
        pause = self._interval
        try:
            page = await_notice(self._waiting)
        except NoAnswer:
            # The connection broke, or there is none: the driver may have been killed.
            self._poll_now.set()
            page = None
            pause = REST_SECONDS
        if page is not None and page.status != "running":
            at = time.monotonic()
            notice = Notice(page.status)
            open_alerts = reported(page.alerts)
            self._report(lambda tracker: tracker.closes(self._endpoint, at, notice, open_alerts))
        elif page is not None:
            is_displaced = time.monotonic() - began < WAIT_SECONDS / 2
            pause = DISPLACED_SECONDS if is_displaced else 0.0
        self._loops[1].stopping.wait(pause)


# -- watcher ----------------------------------------------------------------------------------


ALONE = (
    "querypulse: no receiver on another machine: an unreachable driver is reported only "
    "while another driver on the network answers"
)
TICK_SECONDS = 0.5
PROOF_SECONDS = 1.0


class Watcher:
    """Watches until it is closed; connects to ``hosts`` when its own network is in doubt.

    ``muted`` returns why an alert is silenced now, or nothing; ``record`` gets each evaluation.
    """

    def __init__(
        self,
        *,
        targets: Targets,
        evaluate: DriverAlerts,
        access: Access,
        hosts: Sequence[Host],
        sink: Notifier,
        guard: Guard,
        leadership: Leadership,
        muted: Callable[[Alert], str] = lambda _: "",
        record: Callable[[Evaluated], object] = lambda _: None,
    ) -> None:
        self._targets = targets
        self._evaluate = evaluate
        self._tracker = evaluate.tracker
        self._access = access
        self._interval = evaluate.tracker.interval_seconds
        self._hosts = hosts
        self._sink = sink
        self._leadership = leadership
        self._guard = guard
        self._muted = muted
        self._record = record
        self._observations: SimpleQueue[Observation] = SimpleQueue()
        self._pollers: dict[Endpoint, DriverPoller] = {}
        self._is_unsure = False
        self._problem = ""
        self._warned = False
        self.seen = Seen(at=time.time())
        """What was seen up to the newest evaluation, for readers."""
        self.beat_at = time.monotonic()
        """When that was, in monotonic seconds."""
        self._loops = [
            Loop("targets", self._list, guard),
            Loop("network", self._prove, guard),
            Loop("watch", self._step, guard, last=self._stop_pollers),
        ]

    def start(self) -> None:
        """Start watching."""
        for loop in self._loops:
            loop.start()

    def close(self, timeout: float) -> None:
        """Stop polling. Alerts stay open: closing the watcher brings no driver back."""
        for loop in self._loops:
            loop.stop()
        self._loops[-1].join(timeout)

    def _step(self) -> None:
        """Apply all observations, evaluate, and hand over the incidents."""
        with suppress(Empty):
            self._observations.get(timeout=TICK_SECONDS)(self._tracker)
            while True:
                self._observations.get_nowait()(self._tracker)
        now = time.monotonic()
        wall = time.time()
        incidents = self._evaluate.update(now, wall, self._muted)
        self._sink.offer(incidents)
        nothing = Snapshot(at=now, began_at=now)
        self._record(Evaluated(nothing, Evaluation(), (), wall=wall, incidents=incidents))
        is_open = tuple(incident for incident in incidents if not incident.is_over)
        drivers = self._evaluate.seen(now, wall)
        self.seen = Seen(
            at=wall,
            drivers=drivers,
            incidents=is_open,
            notifies=self._leadership.leads(now),
            peers=self._leadership.seen(now),
        )
        self.beat_at = now
        for line in self._evaluate.news():
            log.info("%s", line)
        self._is_unsure = any(driver.is_unsure for driver in self._tracker.drivers)
        self._update_pollers()

    def hear(self, url: str, began_at: float, at: float, page: PeerPage | None) -> None:
        """Take the answer of a peer, from any thread."""
        self._observations.put(lambda _: self._mirror(url, began_at, at, page))

    def _mirror(self, url: str, began_at: float, at: float, page: PeerPage | None) -> None:
        """Take over what a peer has sent, and continue what it has opened."""
        rank = None if page is None else page.rank
        self._leadership.polled(url, began_at, at, rank)
        if page is not None and rank != self._leadership.rank:
            is_leader = self._leadership.is_led_by(url)
            unknown = self._sink.mirror(page.rows, is_leader=is_leader)
            self._evaluate.restore(unknown, time.monotonic())

    def _update_pollers(self) -> None:
        """Run exactly one poller for each endpoint."""
        wanted = self._tracker.endpoint_states.keys()
        for endpoint in self._pollers.keys() - wanted:
            self._pollers.pop(endpoint).stop()
        for endpoint in wanted - self._pollers.keys():
            log.info("querypulse: polls %s", polled(endpoint))
            self._pollers[endpoint] = DriverPoller(
                endpoint, self._access, self._interval, self._observations.put, self._guard
            )

    def _stop_pollers(self) -> None:
        for poller in self._pollers.values():
            poller.stop()

    def _list(self) -> None:
        """Read the targets again; an error is logged once, and the last good list stays."""
        try:
            endpoints = self._targets.now()
            if not (self._hosts or self._warned or all(e.loopback for e in endpoints)):
                self._warned = True
                log.warning(ALONE)
            self._observations.put(lambda tracker: tracker.listed(endpoints))
            self._problem = ""
        except SettingsError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.error("querypulse: %s; keeping the last list", error)  # noqa: TRY400 - one line
        self._loops[0].stopping.wait(self._interval)

    def _prove(self) -> None:
        """While a driver is unreachable, find out whether any host is reachable."""
        self._loops[1].stopping.wait(PROOF_SECONDS)
        if self._is_unsure and answers(self._hosts):
            at = time.monotonic()
            self._observations.put(lambda tracker: tracker.proved(at))


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
    file = request.webhook_url_file
    arguments = {} if file is None else {"webhook_url_file": file, "webhook_url": None}
    settings = load_strictly(arguments, environment)
    redacting = assemble.make_redactor(settings)
    guard = Guard()
    silencing = SilenceStore(settings.silence_file, guard)
    access = access_of(request, settings)
    about = about_process(settings, APP, "", SeenFrom.WATCH)
    folder = assemble.recordings_folder(settings, None)
    black_box = BlackBox(about, guard, redact=redacting.text, folder=folder)
    evaluate = DriverAlerts(
        TargetTracker(
            request.gone_after, request.interval, request.terminated_after, settings.labels
        ),
        resolve_after_seconds=settings.resolve_after_seconds,
        repeat_interval_seconds=settings.repeat_interval_seconds,
        guidance=replace(guidance(settings).redacted(redacting.text), recordings=black_box.place),
        forgotten=request.forget,
    )
    peers = [endpoint_of(url, "--peer", HTTP_PORT) for url in request.peer]
    check_peers(request.peer, request.http_port)
    leadership = Leadership(new_rank(), [peer.url for peer in peers], request.gone_after)
    notifier = make_notifier(settings, evaluate, black_box, leadership, guard)
    watcher = Watcher(
        targets=Targets(request.urls, request.targets, request.dns),
        evaluate=evaluate,
        access=access,
        hosts=receiver_hosts(settings),
        sink=notifier,
        guard=guard,
        leadership=leadership,
        muted=lambda alert: why_muted(alert, silencing(), time.time()),
        record=black_box.offer,
    )
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    log.addFilter(RedactedLog(redacting.text))
    if not is_taken(settings, incident_labels(APP, WHOLE_DRIVER, settings.labels)):
        log.warning(UNLABELLED)
    ended = threading.Event()
    for number in ENDING_SIGNALS:
        signal.signal(number, lambda *_: ended.set())
    own = pages_of(lambda: watcher.seen) | peer_page(leadership, notifier)
    server, token = make_server(request, settings, watcher, own, guard)
    of_peers = Access(token, access.context)
    pollers = [
        PeerPoller(peer, of_peers, leadership.interval, watcher.hear, guard) for peer in peers
    ]
    tokens = [secret for secret in (access.token, token) if secret is not None]
    read_again = partial(_read_again, redacting, tokens, server)
    files = FileLoop("secret-files", read_again, FILES_SECONDS, guard)
    for part in (files, silencing, black_box, notifier, watcher, *pollers):
        part.start()
    ended.wait()
    for poller in pollers:
        poller.stop()
    if server is not None:
        server.close()
    deadline = Deadline(CLOSING_SECONDS)
    watcher.close(deadline.left / 3)
    notifier.flush(Deadline(deadline.left / 2))
    notifier.close(deadline)
    black_box.close(deadline.left)
    silencing.stop()
    files.end()
    return 0


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
        is_held=lambda: not leadership.leads(time.monotonic()),
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
        alive=lambda: time.monotonic() - watcher.beat_at < ALIVE_SECONDS,
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
    redacting: EvaluationRedactor, tokens: Sequence[Secret], server: HttpServer | None
) -> None:
    """Read secrets in files again: they may be rotated. In a separate thread: a mount may hang."""
    redacting.refresh()
    for token in tokens:
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

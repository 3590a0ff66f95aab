"""The promised time until a person is notified, counted while a signal shows the problem."""

from __future__ import annotations

from math import inf

from querypulse.alerting.policy import WINDOW_FACTOR, Limits, batch_window
from querypulse.alerting.rules.stuck_batch import AUTOSCALE_SECONDS, BLOCKED_SECONDS

from .driver import SimDriver
from .queries import SimQuery
from .stage import TICK_SECONDS, WorldView
from .truth import OF_BATCH, OF_SOURCE, Episode, Health

DEATH_SECONDS = 14.0
GONE_SECONDS = 60.0 + 16.0
BEYOND_WINDOW_SECONDS = 24.0
START_GRACE_SECONDS = Limits().start_grace_seconds
TREND_SECONDS = 300.0
MOST_BATCHES = 30.0


def promised_seconds(
    stage: WorldView, driver: SimDriver, query: SimQuery, episode: Episode, *, critical: bool
) -> float:
    if episode.health is Health.DEAD:
        return DEATH_SECONDS if is_reported(driver, query, episode) else GONE_SECONDS
    if episode.health is Health.GONE:
        return DEATH_SECONDS if episode.began_at == query.taken_at else GONE_SECONDS
    only_log = bool(query.spec.log_every) and not _is_in_flight(driver, query)
    if (critical and not only_log) or _is_first_batch(driver, query, episode):
        return _critical_seconds(stage, driver, query, episode) + BEYOND_WINDOW_SECONDS
    if episode.health in OF_SOURCE:
        # Only some points are kept, and the first one above the limit may be dropped.
        trend = 1.1 * TREND_SECONDS if episode.health is Health.LAGGING else 0.0
        batches = 3.0 * (query.spec.every + query.spec.takes)
        return (
            max(trend, _window(driver, query, episode, TREND_SECONDS))
            + batches
            + BEYOND_WINDOW_SECONDS
        )
    # The time for an autoscaler is that of any batch, also of one that writes its log rarely.
    is_in_flight = _is_in_flight(driver, query)
    bare = _bare_seconds(driver, episode, AUTOSCALE_SECONDS) if is_in_flight else 0.0
    if not query.spec.log_every and is_in_flight:
        return batch_window_seconds(driver, query, episode) + bare + BEYOND_WINDOW_SECONDS
    # A rarely written log may be unchanged for three of its intervals.
    window = max(_window(driver, query, episode, START_GRACE_SECONDS), 3.0 * query.spec.log_every)
    return window + _hung_after(driver, query, episode) + bare + BEYOND_WINDOW_SECONDS


def is_reported(driver: SimDriver, query: SimQuery, episode: Episode) -> bool:
    """Whether an event, or the probe's last report of the run, shows the failure while it lasts.

    The failure of an old run that arrives after the new one has shown life raises no alert.
    """
    if driver.bus.lost_until.get(query.key, 0.0) < episode.began_at:
        return True
    polled = driver.probe.failures.get(query.key, 0.0) >= episode.began_at
    in_time = driver.probe.failures_shown_at.get(query.key, 0.0) <= (episode.ended_at or inf)
    return polled and in_time


def _window(driver: SimDriver, query: SimQuery, episode: Episode, least: float) -> float:
    """The window that the monitor shows, limited to the longest possible window."""
    floor = max(least, START_GRACE_SECONDS)
    most = max(
        floor, MOST_BATCHES * max(query.spec.every, query.spec.takes), _taught(driver, query)
    )
    shown = [
        health.window_seconds or most
        for label, health in driver.worker.evaluated.evaluation.health.items()
        if driver.owners.get(label) == query.key
    ]
    episode.window = max(episode.window, max(shown, default=most))
    return min(most, episode.window)


def _taught(driver: SimDriver, query: SimQuery) -> float:
    """The window after the longest batch in trouble that has taught the monitor what is usual.

    That is one without an alert, and the first one that the monitor has seen.
    """
    pace = query.spec.every + query.spec.takes + TICK_SECONDS
    teaching = [
        episode.ended_at - episode.began_at
        for episode in query.truth.episodes
        if episode.health in OF_BATCH
        and episode.ended_at is not None
        and (not episode.answered or episode.began_at <= driver.attached_at + pace)
    ]
    return WINDOW_FACTOR * max(teaching, default=0.0)


def _is_first_batch(driver: SimDriver, query: SimQuery, episode: Episode) -> bool:
    """Whether it is slow, and no commit of this run was seen before: it may be catching up."""
    pace = query.spec.every + query.spec.takes + TICK_SECONDS
    seen = query.truth.healths_between(driver.attached_at, episode.began_at)
    soon = episode.began_at < driver.attached_at + pace
    unseen = episode.first_batch or soon or Health.HEALTHY not in seen
    # It may have been idle all the time.
    unseen |= query.fed_at < driver.attached_at
    return episode.health is Health.SLOW and unseen


def _hung_after(driver: SimDriver, query: SimQuery, episode: Episode) -> float:
    """How long after the episode began its present batch did, if that hangs or waits for slots.

    Its log did not advance before that, which is another problem than a batch that hangs.
    """
    run = driver.spark.living.get(query.key)
    held_until = max(query.hang_until, query.ask_until, query.skew_until, query.starve_until)
    if run is None or driver.time.now >= held_until:
        return 0.0
    return max(0.0, run.busy_since - episode.began_at)


def _is_in_flight(driver: SimDriver, query: SimQuery) -> bool:
    """Whether a batch is in flight: then its trigger interval does not count."""
    run = driver.spark.living.get(query.key)
    return run is not None and run.busy and not run.spec.is_continuous


def _critical_seconds(
    stage: WorldView, driver: SimDriver, query: SimQuery, episode: Episode
) -> float:
    window = batch_window_seconds(driver, query, episode)
    if episode.health is Health.SLOW:
        return max(window, stage.plan.setup.slow_critical)
    # The time in which its log did not advance was another problem.
    before = _hung_after(driver, query, episode) if query.spec.log_every else 0.0
    is_stuck = episode.health is Health.STUCK
    least = BLOCKED_SECONDS if is_stuck else Limits().stall_critical_seconds
    return before + max(window, least) + _bare_seconds(driver, episode, least)


def _bare_seconds(driver: SimDriver, episode: Episode, most: float) -> float:
    """How long there was no executor since the episode began: once some come, that counts no more."""
    return min(most, max(0.0, driver.spark.bare_until - episode.began_at))


def batch_window_seconds(driver: SimDriver, query: SimQuery, episode: Episode) -> float:
    """The longest window of its batch in flight that the monitor has known in this episode."""
    windows = [
        batch_window(shown, Limits()).seconds
        for label, shown in driver.worker.evaluated.snapshot.labels().items()
        if driver.owners.get(label) == query.key
    ]
    longest = max(windows, default=START_GRACE_SECONDS)
    episode.batch_window = max(episode.batch_window, longest)
    return episode.batch_window

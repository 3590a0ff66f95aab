"""Runs replays and keeps what they report."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from support.event_log import BEGAN

from querypulse.replay.engine import Change, Replayed, replay_application
from querypulse.replay.log_files import find_applications
from querypulse.settings.settings import Settings
from querypulse.settings.wiring import policy


def replayed(*paths: Path, **settings):
    """Replay every application at ``paths``: (changes, replayed input) of each."""
    wanted = Settings(**settings)
    reported = []
    for application in find_applications(map(str, paths)):
        replay = Replayed(wanted.app_name or application.label, application.path)
        changes = replay_application(application, policy(wanted), wanted.app_name, replay)
        reported.append((list(changes), replay))
    return reported


def changes(*paths: Path, **settings) -> list[Change]:
    """The changes in the one application at ``paths``."""
    ((changed, replay),) = replayed(*paths, **settings)
    assert replay.error is None
    return changed


def reported(log, folder: Path, **settings):
    """The alerts of a log: (status, alertname, query, seconds after its beginning)."""
    changed = changes(log.write(folder / "log"), **settings)
    return [
        (finding.status, finding.alertname, finding.query, after(finding.at)) for finding in changed
    ]


def after(at: str) -> float:
    return round(datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp() - BEGAN, 3)

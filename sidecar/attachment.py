"""``attach(spark)``: the one line that users add to a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..settings.settings import Settings, SettingsError
from ..settings.settings_sources import check_arguments
from .session import is_connect, settings_of, watched_by
from .sidecar import SIDECARS, Sidecar


def attach(spark: Any, **arguments: object) -> Sidecar:
    """Watch all queries of ``spark``'s SparkContext, or Spark Connect session, from now on.

    Settings come from the arguments, else the environment, else the Spark conf, else the
    TOML file. A second call for the same one returns the same sidecar. An internal
    error is logged and does not end the job: the sidecar then watches nothing.

    Raises:
        SettingsError: a setting is unknown or not allowed, or a second call has other settings
            than the first.
        TypeError: ``spark`` is not a SparkSession.

    """
    if not is_connect(spark) and not hasattr(spark, "sparkContext"):
        given = "None" if spark is None else type(spark).__name__
        raise TypeError(f"attach() needs a SparkSession, given {given}")
    with SIDECARS.lock:
        known = SIDECARS.find(watched_by(spark))
        if known is not None and not _is_replaced(known, arguments):
            SIDECARS.keep(known)
            return known
        return _started(spark, arguments)


def attach_automatically(spark: Any) -> None:
    """``attach(spark)`` for an application that may attach itself later, with other settings.

    Its own sidecar then takes the place of this one.

    Raises:
        Exception: as ``attach``.

    """
    SIDECARS.let_yield(attach(spark))


def _started(spark: Any, arguments: Mapping[str, object]) -> Sidecar:
    try:
        sidecar = Sidecar(settings_of(spark, arguments), spark=spark)
    except SettingsError:
        raise
    except Exception as error:  # noqa: BLE001 - the calling job continues after any error
        sidecar = Sidecar(Settings(), spark=spark)
        sidecar.stand_by(error)
    else:
        sidecar.start_or_stand_by()
    return sidecar


def _is_replaced(known: Sidecar, arguments: Mapping[str, object]) -> bool:
    """Whether settings differ from those of a sidecar that yields, which is closed.

    Raises:
        SettingsError: they differ from those of another sidecar.

    """
    wanted = check_arguments(arguments)
    other = [name for name, value in wanted.items() if value != getattr(known.settings, name)]
    if other and not SIDECARS.make_way(known):
        raise SettingsError(
            f"attach was called before with other settings for {', '.join(map(repr, other))}; "
            "close the first sidecar, or give all settings to the first call"
        )
    return bool(other)

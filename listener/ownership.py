"""Which of the processes that watch one JVM answers for a query. Pure.

Tasks of one job on a shared cluster are processes of their own on one JVM. Each sees every
query, and each query is reported once: by the process that has claimed its session, else by
the process that came first.
"""

from __future__ import annotations

import msgspec

LEFT = "left:"


class Ownership(msgspec.Struct, frozen=True):
    """What this process and the others that watch the same JVM have claimed.

    ``elders`` are the sessions of processes that came before this one, ``others`` those of all
    other processes. ``is_eldest`` is true where none came before. ``left`` are the sessions of
    processes that have closed lately, and have reported what had failed by then.
    """

    own: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    elders: frozenset[str] = frozenset()
    is_eldest: bool = True
    has_others: bool = False
    left: frozenset[str] = frozenset()

    @property
    def is_alone(self) -> bool:
        """Whether no other process is known to watch this JVM."""
        return self.is_eldest and not self.has_others and not self.others

    def is_own(self, session: str) -> bool:
        """Whether the queries of a session are this process's own; alone, all are."""
        return session in self.own or self.is_alone

    def covers(self, session: str) -> bool:
        """Whether this process answers for the queries of a session; "" is an unknown one."""
        if session in self.own:
            return session not in self.elders
        return self.is_eldest and session not in self.others


ALONE = Ownership()


def parse_watchers(text: str) -> Ownership:
    """Read what ``Watchers.beat`` writes: ``SINCE:SESSION,SESSION``, ours first, with spaces.

    A process that has closed is ``left:SESSION,SESSION``.

    Raises:
        ValueError: it is no such text.

    """
    if not text:
        return ALONE
    first, *rest = text.split(" ")
    since, own = _parsed(first)
    others = [_parsed(one) for one in rest if not one.startswith(LEFT)]
    elders = [sessions for when, sessions in others if when < since]
    return Ownership(
        own=own,
        others=frozenset[str]().union(*(sessions for _, sessions in others)),
        elders=frozenset[str]().union(*elders),
        is_eldest=not elders,
        has_others=bool(others),
        left=frozenset[str]().union(
            *(_sessions(one.removeprefix(LEFT)) for one in rest if one.startswith(LEFT))
        ),
    )


def _parsed(text: str) -> tuple[int, frozenset[str]]:
    since, _, sessions = text.partition(":")
    return int(since), _sessions(sessions)


def _sessions(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))

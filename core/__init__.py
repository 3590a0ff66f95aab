"""What all parts share: guard, threads, deadlines, secrets and redaction."""

AUTO_ATTACH_VARIABLE = "QUERYPULSE_AUTO_ATTACH"
"""Whether drivers attach by themselves, where ``querypulse auto-attach`` is on.

It is here because every Python process may need it, which then imports nothing else.
"""


COULD_NOT_BEGIN = 2
"""The exit code of a command that cannot begin."""


class CommandError(Exception):
    """A command cannot begin; the message says why."""

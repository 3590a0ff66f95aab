"""What all parts share: guard, threads, deadlines, secrets and redaction."""

AUTO_ATTACH_VARIABLE = "QUERYPULSE_AUTO_ATTACH"
"""Whether drivers attach by themselves, where ``querypulse auto-attach`` is on.

It is here because every Python process may need it, which then imports nothing else.
"""
ON = ("1", "true", "yes", "on")
OFF = ("0", "false", "no", "off")
"""The words for yes and no in a text, such as an environment variable; in any case of letters."""


COULD_NOT_BEGIN = 2
"""The exit code of a command that cannot begin."""


class CommandError(Exception):
    """A command cannot begin; the message says why."""

"""Names of environment variables that are needed without the settings."""

from __future__ import annotations

AUTO_ATTACH_VARIABLE = "QUERYPULSE_AUTO_ATTACH"
"""Whether drivers attach by themselves, where ``querypulse auto-attach`` is on."""

"""Takes secrets out of what was judged, our own included, before anything is told of it."""

from __future__ import annotations

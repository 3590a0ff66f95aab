"""``python -m tools.settings [FILE]``: write it, by default where it belongs."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.settings.page import page

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"

if __name__ == "__main__":
    target = Path(sys.argv[1]) if sys.argv[1:] else PAGE
    target.write_text(page(), encoding="utf-8")

"""``python -m tools.pictures [FOLDER]``: take every picture, by default for the docs."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.pictures.status_page import take

HOME = Path(__file__).parents[2] / "docs" / "pictures"

if __name__ == "__main__":
    take(Path(sys.argv[1]) if sys.argv[1:] else HOME)

"""``python -m fuzzing TARGET --minutes N``, run in ``tests/``: searches for inputs that break a promise.

An input that does is kept in ``build/fuzzing/TARGET/``; add it to ``tests/fuzzing/found.py``.
"""

from __future__ import annotations

import argparse
import logging
import sys
from hashlib import sha256
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["querypulse"]):
    from fuzzing.seeds import SEEDS
    from fuzzing.targets import TARGETS

BUILD = Path(__file__).parents[2] / "build" / "fuzzing"
MOST_BYTES = 10_000


def main() -> None:
    asked = _arguments()
    logging.disable(logging.CRITICAL)
    corpus = BUILD / asked.target / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for data in SEEDS[asked.target]():
        (corpus / sha256(data).hexdigest()[:16]).write_bytes(data)
    options = [
        f"-max_total_time={round(asked.minutes * 60)}",
        f"-artifact_prefix={BUILD / asked.target}/",
        f"-max_len={MOST_BYTES}",
        "-timeout=20",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], TARGETS[asked.target])
    atheris.Fuzz()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzzing", description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--minutes", type=float, default=5.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()

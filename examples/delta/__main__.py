"""``python -m querypulse.examples.delta``: the arguments are those of ``querypulse demo``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ...commands.demo.demo import run
from ...commands.demo.scenarios import DemoSettings, add_demo_arguments
from ...commands.exit_code import exit_code
from ...core.installed import require_spark
from .delta_pipeline import DeltaPipeline


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; 2 if there is no Java, no connector for this Spark, or no broker."""
    parser = argparse.ArgumentParser(prog="python -m querypulse.examples.delta")
    add_demo_arguments(parser)
    settings = DemoSettings(**vars(parser.parse_args(argv)))
    return exit_code(lambda: _demo(settings))


def _demo(settings: DemoSettings) -> int:
    require_spark()
    return run(settings, DeltaPipeline)


if __name__ == "__main__":
    sys.exit(main())

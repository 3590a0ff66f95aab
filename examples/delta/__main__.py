"""``python -m querypulse.examples.delta``: the arguments are those of ``querypulse demo``."""

from __future__ import annotations

import argparse
import sys

from ...commands.demo.demo_arguments import add_demo_arguments
from ...commands.demo.demo_settings import DemoSettings
from ...commands.demo.run import run
from ...core.installed import NotInstalledError, require_spark
from .artifacts import ArtifactsError
from .broker import BrokerError
from .delta_pipeline import DeltaPipeline

COULD_NOT_BEGIN = 2


def main() -> int:
    """Run the demo; 2 if there is no Java, no connector for this Spark, or no broker."""
    parser = argparse.ArgumentParser(prog="python -m querypulse.examples.delta")
    add_demo_arguments(parser)
    settings = DemoSettings(**vars(parser.parse_args()))
    try:
        require_spark()
        return run(settings, DeltaPipeline)
    except (NotInstalledError, ArtifactsError, BrokerError) as error:
        sys.stderr.write(f"querypulse: {error}\n")
        return COULD_NOT_BEGIN


if __name__ == "__main__":
    sys.exit(main())

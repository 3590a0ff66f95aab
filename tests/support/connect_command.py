"""``querypulse connect-server`` in a process of its own."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .connect_server import server_jars
from .driver import Driver

CLI = "from querypulse.commands.cli import main; raise SystemExit(main())"
CONF = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
}


class Server:
    """The command, once it serves; ``remote`` is its address for clients."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        line = driver.line("Spark Connect is served at ")
        self.remote = line.removeprefix("Spark Connect is served at ").partition(",")[0]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal the command, not its JVM; its exit code."""
        self.driver.process.send_signal(number)
        return self.driver.wait()


def command(folder: Path, port: int | str = 0, **environment: str) -> Driver:
    """The command, on any free port unless one is given."""
    conf = [word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")]
    jars = ["--jars", ",".join(map(str, server_jars()))] if server_jars() else []
    words = ("connect-server", "--port", str(port), "--master", "local[2]", *conf, *jars, "--name")
    # The driver appends the name of its script, which is that of the application.
    return Driver(
        "",
        folder,
        header="",
        cwd=folder,
        command=(sys.executable, "-Ic", CLI, *words),
        **environment,
    )


@contextmanager
def served(folder: Path, **environment: str) -> Iterator[Server]:
    """The command while it serves."""
    with command(folder, **environment) as driver:
        yield Server(driver)

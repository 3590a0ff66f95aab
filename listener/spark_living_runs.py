"""Asks Spark what all its living runs do with one command, whatever their number.

Py4J takes a command for each method of each object, six for a run, and the JVM and Python pay
for every one. So the driver's JVM gets a small class that does the asking.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any
from uuid import uuid4

from .details import Details
from .living_runs import LivingRun, parse_living_runs

COMPILER = "org.codehaus.janino.SimpleCompiler"
NAME = "LivingRuns"
FIRST_WITH_EXECUTION_CONTEXT = 4
"""Spark 4 keeps the batch's id in its ``getLatestExecutionContext``."""


class SparkLivingRuns:
    """``LivingRuns.java`` in Spark's JVM, compiled when it is first asked; used by one thread."""

    def __init__(self, jvm: Any, executions: Any, spark_major: int, details: Details) -> None:
        self._jvm = jvm
        self._executions = executions
        has_context = spark_major >= FIRST_WITH_EXECUTION_CONTEXT
        self._batch_holder = "getLatestExecutionContext" if has_context else ""
        self._ask = details.ask
        self._java: Any = None
        self._refused = False

    def tell(self) -> dict[str, LivingRun] | None:
        """All living runs by query id; None where this Spark does not let us ask so.

        Raises:
            ValueError: it answers what cannot be read.
            Py4JNetworkError: the JVM does not answer.

        """
        if self._java is None and not self._refused:
            self._java = self._ask("living_runs", self._compiled, None)
            self._refused = self._java is None
        if self._refused:
            return None
        answer = self._ask("living_runs", self._tell, None)
        return None if answer is None else parse_living_runs(answer)

    def _tell(self) -> str:
        return str(self._java.tell(self._executions, self._batch_holder))

    def _compiled(self) -> Any:
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        compiler = loader.loadClass(COMPILER).newInstance()
        source = files(__package__).joinpath(f"{NAME}.java").read_text()
        # Py4J remembers methods by their class's name, and would call those of an earlier class.
        name = f"{NAME}_{uuid4().hex}"
        compiler.cook(source.replace(NAME, name))
        return compiler.getClassLoader().loadClass(name).newInstance()

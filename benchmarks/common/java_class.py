"""Java classes of ours in Spark's JVM, without a JDK.

Janino, the compiler that Spark uses for its generated code, compiles them at run time.
"""

from pathlib import Path
from typing import Any


def compiled(jvm: Any, source: Path) -> Any:
    """The ``java.lang.Class`` of a source file that holds the class it is named after."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(source.read_text())
    return compiler.getClassLoader().loadClass(source.stem)

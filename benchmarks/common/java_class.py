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


def instance(gateway: Any, made: Any, *arguments: Any) -> Any:
    """An object of a compiled class, by its only constructor."""
    array = gateway.new_array(gateway.jvm.Object, len(arguments))
    for place, argument in enumerate(arguments):
        array[place] = argument
    return made.getConstructors()[0].newInstance(array)

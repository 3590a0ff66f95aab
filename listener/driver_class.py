"""Compiles a small Java class of ours in Spark's driver, with the compiler that Spark includes.

Spark compiles its generated code with Janino, so every driver has it. Our sources use Java 8.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any
from uuid import uuid4

_IMPORT = re.compile(r"^import .*;$", re.MULTILINE)
COMPILER = "org.codehaus.janino.SimpleCompiler"


def compile_in_driver(jvm: Any, *names: str) -> Any:
    """Compile this package's ``.java`` files of these names; return the first one's ``Class``.

    The classes and their loader can be collected once nothing refers to them.

    Raises:
        OSError: a source is missing, for example in a package shipped without its data.
        Py4JError: this driver forbids compiling, or rejects the class.
        Py4JNetworkError: the JVM does not answer.

    """
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = loader.loadClass(COMPILER).newInstance()
    compiler.setParentClassLoader(loader)
    # Py4J caches methods by class name and would call those of an earlier class.
    suffix = uuid4().hex
    compiler.cook(source_of(names, suffix))
    return compiler.getClassLoader().loadClass(f"{names[0]}_{suffix}")


def source_of(names: Sequence[str], suffix: str) -> str:
    """All sources as one text, as Janino requires, with the suffix added to each class name.

    Raises:
        OSError: a source is missing.

    """
    sources = [_source(name) for name in names]
    imports = dict.fromkeys(line for source in sources for line in _IMPORT.findall(source))
    text = "\n".join([*imports, *(_IMPORT.sub("", source) for source in sources)])
    for name in names:
        text = re.sub(rf"\b{name}\b", f"{name}_{suffix}", text)
    return text


def _source(name: str) -> str:
    return files(__package__).joinpath(f"{name}.java").read_text(encoding="utf-8")

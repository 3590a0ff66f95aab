"""One class name means one thing: in the packages, tools, benchmarks and tests."""

from __future__ import annotations

import ast
from collections import defaultdict

from support.repository import files


def classes(text):
    """The names of all classes in a Python file, but of declarations for Py4J.

    Py4J reads the Java interfaces of an object from ``implements`` of a nested class ``Java``.
    """
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    return [node.name for node in found if not (node.name == "Java" and implements(node))]


def implements(node):
    assigned = [line for line in node.body if isinstance(line, ast.Assign)]
    return any(ast.unparse(line.targets[0]) == "implements" for line in assigned)


def test_no_two_classes_have_the_same_name():
    places = defaultdict(list)
    for path, text in files("*.py").items():
        for name in classes(text):
            places[name].append(path)

    assert len(places) > 500
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_nested_classes_are_compared_and_declarations_for_py4j_are_not():
    text = """
class Outer:
    class Inner: ...
    class Java:
        implements = ["java.lang.Runnable"]
def function():
    class Local: ...
    class Java: ...
"""
    assert sorted(classes(text)) == ["Inner", "Java", "Local", "Outer"]

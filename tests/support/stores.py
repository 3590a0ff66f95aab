"""A folder in memory, as a store has it: it may refuse, be slow, or lose its user."""

from __future__ import annotations

import errno
import os

from querypulse.core.folders import FileEntry


class Store:
    """One process's view of ``files``; ``calls`` is what was asked of it.

    ``refuses`` is raised by every call, and ``during`` is called in it. ``changed`` has the Unix
    times of files that did not change at ``now``.
    """

    place = "s3a://team/querypulse"

    def __init__(self, files=None, *, appends=False, now=0.0):
        self.files = {} if files is None else files
        self.appends = appends
        self.now = now
        self.changed = {}
        self.calls = []
        self.refuses = None
        self.during = lambda: None

    def _call(self, what, name=""):
        self.calls.append((what, name))
        self.during()
        if self.refuses is not None:
            raise self.refuses

    def make(self):
        self._call("make")

    def entries(self):
        self._call("entries")
        return {
            name: FileEntry(len(content), self.changed.get(name, self.now))
            for name, content in self.files.items()
        }

    def read(self, name):
        self._call("read", name)
        return self._require(name)

    def write(self, name, content):
        self._call("write", name)
        self.files[name] = content

    def append(self, name, content):
        self._call("append", name)
        self.files[name] = self._require(name) + content

    def delete(self, name):
        self._call("delete", name)
        self.files.pop(name, None)

    def _require(self, name):
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self.files[name]

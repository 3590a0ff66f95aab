"""``python -m tools.links``: report each link into the project that has no target.

It reads the links and pictures of every document, and the addresses below the repository's own in
rules, dashboards, code and the status page. Links to the web are not followed. What ``querypulse
dashboards export`` writes has no checkout around it, so its documents link only to each other and
to the web.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[1]
EXPORTED = "dashboards/"
WITH_ADDRESSES = {".py", ".yaml", ".yml", ".json", ".toml", ".js", ".html", ".css"}
NOT_READ = ("tests/", "tools/", "benchmarks/")
"""Their addresses are examples."""
_CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
_HTML = re.compile(r"<(?:a|img|source)\b[^>]*\b(?:href|src|srcset)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def tracked() -> list[str]:
    """The paths of the files that git tracks or would track."""
    listed = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607 - git of the PATH, as people use it
        cwd=ROOT,
        text=True,
    )
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@cache
def text_of(path: Path) -> str:
    """The text of a file."""
    return path.read_text(encoding="utf-8")


@cache
def below() -> str:
    """The address below which the repository shows its files."""
    (home,) = re.findall(r'^Repository = "(.+)"$', text_of(ROOT / "pyproject.toml"), re.MULTILINE)
    return f"{home}/blob/main/"


def local(link: str) -> str:
    """The address of a file, of its raw content, too: an index needs that of pictures."""
    raw = below().replace("https://github.com/", "https://raw.githubusercontent.com/")
    raw = raw.replace("/blob/", "/")
    return below() + link.removeprefix(raw) if link.startswith(raw) else link


def links(text: str) -> list[str]:
    """The targets of links and pictures of a document, in Markdown and in HTML."""
    return _LINK.findall(_CODE.sub("", text)) + _HTML.findall(text)


def addresses(text: str) -> list[str]:
    """The addresses of files of the repository in any text."""
    return re.findall(re.escape(below()) + r"[\w./-]*\w", text)


@cache
def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of a document's headings."""
    return {_anchor(heading) for heading in _HEADING.findall(text_of(path))}


def _anchor(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def broken(name: str, link: str) -> str:
    """What is wrong with a link of a file; empty for a link to the web, or with a target."""
    link = local(link)
    is_address = link.startswith(below())
    if re.match(r"[a-z]+:", link) and not is_address:
        return ""
    base = ROOT if is_address else (ROOT / name).parent
    path, _, anchor = link.removeprefix(below()).partition("#")
    target = (base / unquote(path)).resolve() if path else ROOT / name
    if not target.exists():
        return "there is no such file"
    if anchor and anchor not in anchors(target):
        return "there is no such heading"
    if name.startswith(EXPORTED) and not (is_address or target.is_relative_to(ROOT / EXPORTED)):
        return "it is not exported"
    return ""


def links_of(name: str) -> list[str]:
    """The links of a file into the project or to the web."""
    suffix = Path(name).suffix
    if suffix == ".md":
        return links(text_of(ROOT / name))
    if suffix in WITH_ADDRESSES and not name.startswith(NOT_READ):
        return addresses(text_of(ROOT / name))
    return []


def problems() -> Iterator[str]:
    """Yield a line for each link without a target."""
    for name in tracked():
        for link in links_of(name):
            if problem := broken(name, link):
                yield f"{name}: {link}: {problem}"


def main() -> int:
    """Check all links; 1 if one is broken."""
    lines = list(problems())
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

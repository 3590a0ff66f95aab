"""``python -m tools.dependencies``: write ``requirements/``, with the hashes of each version.

uv resolves for all platforms at once and lists every file of a version, so the hashes cover each
platform's wheels. It asks the index that it is configured for.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.dependencies.layers import BUILD, LAYERS, files

ROOT = Path(__file__).parents[2]
OLDEST_PYTHON = "3.11"
"""That of the newest PySpark, which the constraints name."""
COMMAND = (
    *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"),
    *("--python-version", OLDEST_PYTHON, "--no-header", "--no-annotate"),
    *("--constraint", "constraints.txt"),
)


def main() -> None:
    """Compile each layer together with those before it, and write its own part."""
    compiled = {name: _compiled(name) for name in LAYERS}
    for name, text in files(compiled).items():
        (ROOT / "requirements" / f"{name}.txt").write_text(text, encoding="utf-8")


def _compiled(name: str) -> str:
    wanted = [*LAYERS[name].after, name]
    arguments = [argument for layer in wanted for argument in LAYERS[layer].arguments]
    done = subprocess.run(  # noqa: S603 - uv of this environment, with arguments of this file
        [*COMMAND, *arguments], cwd=ROOT, input=BUILD, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return done.stdout


if __name__ == "__main__":
    main()

"""The kinds of pipelines that the demo has."""

from __future__ import annotations

from .delta_pipeline import DeltaPipeline
from .file_pipeline import FilePipeline
from .pipeline import Pipeline

FILES = "files"
PIPELINES: dict[str, type[Pipeline]] = {FILES: FilePipeline, "delta": DeltaPipeline}

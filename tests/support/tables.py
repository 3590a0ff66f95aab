"""Tables of Delta and Iceberg for tests on real Spark: written to, replaced, cleaned up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any


class DeltaTable:
    """A Delta table in a folder of its own; each write is one version of one file."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def __str__(self) -> str:
        return f"delta.`{self.folder}`"

    def write(
        self,
        times: int = 1,
        *,
        mode: str = "append",
        columns: tuple[str, ...] = ("id",),
        **options: Any,
    ) -> DeltaTable:
        """Write three rows per version."""
        rows = self.spark.range(3).selectExpr(*columns).coalesce(1)
        for _ in range(times):
            rows.write.format("delta").mode(mode).options(**options).save(str(self.folder))
        return self

    def sql(self, statement: str) -> None:
        """Run a statement in which ``{}`` is the table."""
        self.spark.sql(statement.format(self))

    def stream(self, **options: Any) -> Any:
        return self.spark.readStream.format("delta").options(**options).load(str(self.folder))

    def history(self) -> list[int]:
        """Its versions, as Delta reports them."""
        rows = self.spark.sql(f"DESCRIBE HISTORY {self}").select("version").collect()
        return sorted(row.version for row in rows)

    def forget(self, *, before: int) -> None:
        """Remove commits as Delta does when they are older than ``logRetentionDuration``."""
        for version in range(before):
            for old in (self.folder / "_delta_log").glob(f"*{version:020d}.json*"):
                old.unlink()

    def vacuum(self) -> None:
        """Remove the files that the newest version does not hold, as ``VACUUM`` with no retention."""
        held = self.spark.read.format("delta").load(str(self.folder)).inputFiles()
        names = {name.rpartition("/")[2] for name in held}
        for path in self.folder.glob("*.parquet"):
            if path.name not in names:
                path.unlink()

    def replace_by(self, other: DeltaTable) -> None:
        """Replace the table as if it was dropped and recreated between two polls."""
        self.folder.rename(self.folder.with_suffix(".old"))
        other.folder.rename(self.folder)

    def drop(self) -> None:
        shutil.rmtree(self.folder)


class IcebergTable:
    """A table of the catalog ``ice``; each write is one snapshot of one file."""

    def __init__(self, spark: Any, warehouse: str, name: str) -> None:
        self.spark = spark
        self.name = f"ice.db.{name}"
        self.metadata = Path(warehouse) / "db" / name / "metadata"
        spark.sql(f"CREATE TABLE {self.name} (id bigint) USING iceberg")

    def write(self, times: int = 1) -> IcebergTable:
        for _ in range(times):
            self.spark.range(3).coalesce(1).writeTo(self.name).append()
        return self

    def stream(self, **options: Any) -> Any:
        return self.spark.readStream.format("iceberg").options(**options).load(self.name)

    def rows(self) -> int:
        return self.spark.table(self.name).count()

    def commit_file(self, ahead: int) -> str:
        """The metadata file that the commit after ``ahead`` other commits will write."""
        versions = [int(path.name[1:].split(".")[0]) for path in self.metadata.glob("v*.json")]
        return f"{self.metadata}/v{max(versions) + 1 + ahead}.metadata.json"

# SPDX-License-Identifier: Apache-2.0
"""Spark for the tests: its classes in an archive, its own Python modules compiled.

``python -m tests.spark_home`` creates both in the environment, once, in a minute and a half. Tests
also run without them, but take longer. With its classes archived a session needs two fifths less
time until its first jobs are done. Its workers would load Python modules from a zip, and each would
compile them, for a second: without the zip they use the compiled modules of the environment.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.class_archive import archive_classes, archive_options, listing_option, run

HOME = Path(sys.prefix, "spark-home")
_ARCHIVE = HOME.with_suffix(".jsa")
# For all JVMs of the tests: they end before a second compiler, a collector's threads, and proofs
# that classes are sound pay off.
_JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
_CLASS_PATH = "class path: "


def set_variables() -> None:
    """Set the archive and Spark of the environment for JVMs of this process and its children."""
    options = [*_JVM_OPTIONS, *archive_options(_ARCHIVE)]
    os.environ.setdefault("JDK_JAVA_OPTIONS", _quoted(options))
    if HOME.is_dir():
        os.environ.setdefault("SPARK_HOME", str(HOME))


def _quoted(options: list[str]) -> str:
    """Return options in the form of JDK_JAVA_OPTIONS; paths may have spaces."""
    return " ".join(f'"{option}"' for option in options)


def link_all(source: Path, target: Path, *, but: str) -> None:
    """Make a folder of links to everything in another one, except one name."""
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        if path.name != but and not (target / path.name).is_symlink():
            (target / path.name).symlink_to(path)


def _make() -> None:
    """Make the folder, run a few jobs with it, and archive the classes that they needed."""
    import pyspark

    link_all(Path(pyspark.__file__).parent, HOME, but="python")
    with tempfile.TemporaryDirectory(prefix="spark-classes-") as folder:
        listed = Path(folder, "classes")
        variables = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "PYSPARK_PYTHON": sys.executable,
            "JDK_JAVA_OPTIONS": _quoted([*_JVM_OPTIONS, listing_option(listed)]),
        }
        said = run([sys.executable, "-m", __spec__.name, folder], env=variables)
        for line in said:
            if line.startswith(_CLASS_PATH):
                archive_classes(_ARCHIVE, listed, ["-cp", line[len(_CLASS_PATH) :]])


def _run_jobs(folder: Path) -> None:
    """Run a little of everything that tests do with Spark."""
    from pyspark.sql import SparkSession

    from tests.conftest import SPARK_SETTINGS
    from tests.golden_store import golden

    builder = SparkSession.builder.master("local[2]").config(map=SPARK_SETTINGS)
    spark = builder.getOrCreate()
    store = str(golden("classic-5x").root)
    rows = spark.read.format("rocketmq-store").load(store)
    rows.createOrReplaceTempView("messages")
    counts = "SELECT topic, count(*) AS n FROM messages GROUP BY topic ORDER BY n"
    spark.sql(f"SELECT * FROM messages JOIN ({counts}) USING (topic) LIMIT 5").collect()
    rows.select("topic", "body").write.parquet(str(folder / "parquet"))
    messages = rows.selectExpr("'First' AS topic", "body").where("length(body) > 0")
    messages.write.format("rocketmq-store").mode("append").save(str(folder / "store"))
    stream = spark.readStream.format("rocketmq-store").load(store).writeStream
    checkpoint = str(folder / "checkpoint")
    stream = stream.format("noop").option("checkpointLocation", checkpoint)
    stream.trigger(availableNow=True).start().awaitTermination()
    java = spark.sparkContext._jvm.java.lang.System
    print(_CLASS_PATH + java.getProperty("java.class.path"))
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _run_jobs(Path(sys.argv[1]))
    else:
        _make()

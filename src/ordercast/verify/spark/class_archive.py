"""Spark's classes, read and checked once: with such an archive, Java starts Spark in half the processor time.

Java 13 and newer can write down, at the end of a process, the classes that it loaded (`-XX:ArchiveClassesAtExit`), and
map them into the memory of later ones. An archive belongs to one Java and one set of Spark's files. Java looks at both
and does without an archive that does not fit, so a wrong one costs time and never a result.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from ordercast.verify.spark.java import cache_dir, java_binary

_QUIET = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
_TRAINING = "ORDERCAST_ARCHIVE_CLASSES"
"""The environment variable that names the archive to write when Java ends."""


def archive_options() -> list[str]:
    """Options for Java: to use the archive if there is one, or to write it in the process that `prepare` started."""
    if wanted := os.environ.get(_TRAINING):
        return [f"-XX:ArchiveClassesAtExit={wanted}", *_QUIET]
    archive = archive_path()
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive.is_file() else []


def archive_path() -> Path:
    """The path of the archive of this Java and this Spark, whether it is there or not."""
    import pyspark

    java = java_binary()
    told = f"{java} {java.stat().st_mtime_ns} {Path(pyspark.__file__).parent} {pyspark.__version__}"
    return _directory() / f"spark-{hashlib.sha256(told.encode()).hexdigest()[:16]}.jsa"


def prepare() -> Path | None:
    """Make the archive, if it is not there: half a minute of work, 150 MB. None if this Java cannot write one."""
    archive = archive_path()
    if archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    _forget_others(archive)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".training-") as directory:
        written = Path(directory) / "classes.jsa"
        command = [sys.executable, "-m", "ordercast.verify.spark.training", directory]
        subprocess.run(command, env=os.environ | {_TRAINING: str(written)}, capture_output=True, check=False)
        if not written.is_file():
            return None
        written.replace(archive)
    return archive


def _directory() -> Path:
    """The virtual environment that has this Spark, so that the archive goes when it goes; else our cache."""
    own = Path(sys.prefix)
    if sys.prefix != sys.base_prefix and os.access(own, os.W_OK):
        return own / "share" / "ordercast"
    return cache_dir()


def _forget_others(archive: Path) -> None:
    """Archives of Javas and Sparks that were here before are of no use: each takes 150 MB."""
    for other in archive.parent.glob("spark-*.jsa"):
        with suppress(OSError):
            other.unlink()

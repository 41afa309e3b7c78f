"""One Spark session, quiet and ready for our kernels: on this machine, on a cluster, under spark-submit or Connect."""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import socket
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ordercast.verify.spark.class_archive import archive_options
from ordercast.verify.spark.engine import attach
from ordercast.verify.spark.gateway import launch, own_interrupts
from ordercast.verify.spark.java import EnvironmentLacks, cache_dir, java_home, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[2]"
ANSWER_WITHIN_S = 5.0
"""How long a cluster's master may take to accept a connection before we call it unreachable."""

_KNOWN_MASTERS = re.compile(
    r"local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|spark://[^,/\s]+:\d+(,[^,/\s]+:\d+)*"
    r"|yarn|k8s://\S+|sc://\S+"
)

# Errors only, on stderr. The gateway would announce the log level; the executor and the task manager would print the
# stack of a failed task that Python then raises anyway. A cluster without free workers is worth its warning: nothing
# else says why the job does not start.
_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark %p %c{1}: %m%n%ex{short}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.scheduler.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.scheduler.level = warn
"""

# What may be set on a session that somebody else started.
_SESSION_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}

_NO_CODE_OF_ITS_OWN = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark writes and compiles Java for every query, which takes longer than a small trace does without."""

MEMORY = "ORDERCAST_SPARK_MEMORY"
"""The environment variable that says how large the heap of Spark's Java process may get."""


SHIP = "ORDERCAST_SHIP_PACKAGE"
"""The environment variable that says `no` where the hosts of a cluster have this package installed already.

What is shipped is compiled anew by every worker of every application; what is installed is compiled once."""


_LESS_AT_ONCE = "use fewer at a time (--master local[1]), or smaller tasks (ORDERCAST_TASK_MB=128)"


class MasterError(Exception):
    """A Spark master that is no such thing, or that does not answer; the message is one line."""


def session(
    master: str | None = None,
    *,
    app: str = "ordercast",
    memory: str | None = None,
    quick: bool = False,
    warm: bool = False,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The Spark session of this process, started if there is none, writing nothing to the console.

    Without `master` it runs on two threads of this machine, or wherever spark-submit or SPARK_REMOTE point. `memory` is
    the Java heap, in which all Spark work of local mode happens; if it is not given, ORDERCAST_SPARK_MEMORY or 2g.
    `quick` favours a fast start over peak speed, which suits tests and small traces; `warm` takes the engine that
    `ordercast engine start` has left running, if there is one. Hosts of a cluster get our package
    shipped; they need the same Python with our dependencies.
    """
    if master is not None:
        expect_master(master)
    # Workers would otherwise run whichever python3 comes first on the PATH, which need not have our dependencies.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    running = _running(master)
    if running is not None:
        return running
    if (master or os.environ.get("SPARK_REMOTE", "")).startswith("sc://"):
        return _connect(master, app, conf or {})
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _submitted(master, app, conf or {})
    if warm and (engine := attach(master)) is not None:
        return engine
    return _launch(
        master or DEFAULT_MASTER,
        app,
        {**_launch_conf(memory or os.environ.get(MEMORY, "2g"), quick=quick), **(conf or {})},
    )


def expect_master(master: str) -> None:
    """Say it now, before anything slow, if this is no address of a Spark."""
    if not _KNOWN_MASTERS.fullmatch(master):
        raise MasterError(
            f"{master}: not a Spark master (such as local[2], spark://host:7077, yarn, k8s://…, sc://host)"
        )


def _running(master: str | None) -> SparkSession | None:
    """The session that this process already has, unless it runs somewhere else than asked."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession() or _of_another_thread()
    if active is None:
        return None
    where = active.conf.get("spark.master", "sc://")
    if master is not None and not master.startswith("sc://") and where != master:
        raise MasterError(f"{master}: this process already has a Spark session on {where}; stop it first")
    return active


def _of_another_thread() -> SparkSession | None:
    """Sessions are active in the thread that has started them; there is one Spark context in a process."""
    import pyspark
    from pyspark.sql import SparkSession

    context = getattr(pyspark, "SparkContext", None)  # A client of Connect alone has none.
    started = context is not None and context._active_spark_context is not None
    return SparkSession.builder.getOrCreate() if started else None


def _launch(master: str, app: str, conf: dict[str, str]) -> SparkSession:
    """Start a Java virtual machine of our own, and the session in it."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if master.startswith("spark://"):
        _expect_answer(master)
    if _is_loopback(master):
        # A machine's own name need not resolve, least of all in a container.
        conf = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **conf}
    settings = {**conf, "spark.app.name": app, "spark.master": master}
    with _environment(JAVA_HOME=str(java_home())):
        try:
            gateway = launch(SparkConf(loadDefaults=False).setAll(list(settings.items())))
            with own_interrupts():
                SparkContext(conf=SparkConf().setAll(list(settings.items())), gateway=gateway)
            spark = SparkSession.builder.getOrCreate()
        except PySparkRuntimeError as error:
            heap = conf["spark.driver.memory"]
            raise EnvironmentLacks(f"Java could not start Spark with {heap} of memory: {_first_line(error)}") from None
        except Exception as error:
            if master.startswith("local"):
                raise
            raise MasterError(f"{master}: Spark could not start there: {_first_line(error)}") from None
    _ship_package(spark)
    return spark


def _submitted(master: str | None, app: str, conf: Mapping[str, str]) -> SparkSession:
    """Under spark-submit the virtual machine and its settings are there already."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**_SESSION_CONF, **conf}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    _ship_package(spark)
    return spark


def _connect(master: str | None, app: str, conf: Mapping[str, str]) -> SparkSession:
    """A Connect server runs Spark elsewhere; there is no Java and no Spark context on this side."""
    if any(importlib.util.find_spec(module) is None for module in ("grpc", "grpc_status")):
        raise EnvironmentLacks("Spark Connect needs its client: pip install 'pyspark[connect]'")
    from pyspark.sql import SparkSession

    address = master or os.environ["SPARK_REMOTE"]
    _expect_answer(address, default_port=15002)
    spark = SparkSession.builder.appName(app).remote(address).getOrCreate()
    for key, value in {**_SESSION_CONF, **conf}.items():
        spark.conf.set(key, value)
    spark.addArtifacts(_packed_package(), pyfile=True)
    return spark


def _launch_conf(memory: str, *, quick: bool) -> dict[str, str]:
    log4j = cache_dir() / "log4j2.properties"
    write_atomically(log4j, _LOG4J)
    java_options = [f"-Dlog4j2.configurationFile={log4j.as_uri()}", *archive_options()]
    quickly: dict[str, str] = {}
    if quick:
        java_options.append("-XX:TieredStopAtLevel=1")
        quickly = _NO_CODE_OF_ITS_OWN
    return {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(cache_dir() / "warehouse"),
        "spark.python.worker.faulthandler.enabled": "true",
        **quickly,
        **_SESSION_CONF,
    }


def _expect_answer(master: str, default_port: int | None = None) -> None:
    """Fail now, and in one line, where Spark would try for a minute and then print a page."""
    failure = ""
    for host, port in _addresses(master, default_port):
        try:
            with socket.create_connection((host, port), timeout=ANSWER_WITHIN_S):
                return
        except OSError as error:
            failure = error.strerror or str(error)
    raise MasterError(f"{master}: no Spark answers there ({failure})")


def _addresses(master: str, default_port: int | None) -> list[tuple[str, int]]:
    scheme, _, rest = master.partition("://")
    found = []
    for address in rest.split(","):
        try:
            parts = urlsplit(f"{scheme}://{address}")
            port = parts.port or default_port
        except ValueError:
            port = None
        if port is None or not parts.hostname:
            raise MasterError(f"{master}: {address} is not HOST:PORT")
        found.append((parts.hostname, port))
    return found


def _ship_package(spark: SparkSession) -> None:
    """Give a cluster's hosts our package. Tasks of a local session see this very installation and need nothing."""
    if re.fullmatch(r"local(\[.*\])?", spark.sparkContext.master or ""):
        return
    if os.environ.get(SHIP) != "no":
        spark.sparkContext.addPyFile(_packed_package())
    atexit.register(spark.stop)  # executors that are left behind complain about it on the console


def _is_loopback(master: str) -> bool:
    return master.startswith(("local", "spark://127.", "spark://localhost:", "spark://[::1]"))


def _packed_package() -> str:
    """Our own package as a zip file, for hosts that do not have it installed; they fetch it until this process ends."""
    root = Path(__file__).parents[2]
    directory = tempfile.mkdtemp(prefix="ordercast-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    packed = Path(directory) / "ordercast.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted(root.rglob("*.py")):
            archive.write(source, source.relative_to(root.parent))
    return str(packed)


def what_gave_out(error: BaseException) -> str:
    """The one line for an error that says that Spark ran out of memory or lost a process; empty for any other."""
    if type(error).__module__.partition(".")[0] not in ("py4j", "pyspark"):
        return ""
    said = str(error)
    if "java.lang.OutOfMemoryError" in said:
        return f"Spark's Java heap is exhausted: give it more, such as {MEMORY}=8g"
    if "MemoryError" in said:
        return f"memory is exhausted in a Python worker of Spark: {_LESS_AT_ONCE}"
    if "Python worker exited unexpectedly" in said:
        return f"a Python worker of Spark was killed, perhaps for want of memory: {_LESS_AT_ONCE}"
    if type(error).__name__ == "Py4JNetworkError":
        return f"Spark's Java process has ended, perhaps for want of memory (see {MEMORY})"
    return ""


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables for the children started inside, and for nobody later."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

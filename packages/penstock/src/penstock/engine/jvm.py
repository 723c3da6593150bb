"""The JVM of embedded Spark: started by Spark's own script, and connected to PySpark. Runs in the thread that starts Spark.

PySpark could start it too, but gives it a copy of this process's environment, waits in steps of a tenth of a second, and leaves nothing
to end it by while it is on its way. It ends when this process does: its standard input is a pipe of ours.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.errors import UsageError

STEP = 0.01  # seconds between two looks for the JVM's answer
DEAF = (
    "/bin/sh",
    "-c",
    "trap '' INT; exec \"$@\"",
    "sh",
)  # a Ctrl-C is for us alone, though the terminal sends it to both
_WAYS = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
_connecting = threading.Lock()


def spark_home() -> Path:
    """Where Spark is, as PySpark finds it, but without importing PySpark: that can be done while the JVM starts."""
    named = os.environ.get("SPARK_HOME")
    spec = find_spec("pyspark")
    if named:
        return Path(named)
    if spec is None or spec.origin is None:
        raise UsageError(
            "PySpark is not installed", code="spark.missing", hint="install it: pip install 'penstock[spark]'"
        )
    package = Path(spec.origin).parent
    found = next((p for p in (package / "spark-distribution", package) if (p / "bin" / "spark-submit").exists()), None)
    if found is not None:
        return found
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


class Jvm:
    """A process that is starting. `end` may be called from any thread."""

    def __init__(self, settings: Mapping[str, str], env: Mapping[str, str], log: int, log_file: Path) -> None:
        self._log_file = log_file
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-jvm-")
        self._answer = Path(self._folder.name) / "answer"
        command = [*DEAF, str(spark_home() / "bin" / "spark-submit")]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += shlex.split(env.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**env, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._answer)},
        )

    def connect(self) -> Any:
        """The gateway, once the JVM answers."""
        from pyspark.java_gateway import launch_gateway
        from pyspark.serializers import UTF8Deserializer, read_int

        while not self._answer.exists():
            if (code := self.process.poll()) is not None:
                raise UsageError(
                    "Spark did not start",
                    code="spark.start",
                    why=f"its Java process ended with {code}",
                    hint=f"what it said is in {self._log_file}; `penstock doctor` checks what Spark needs",
                )
            time.sleep(STEP)
        with self._answer.open("rb") as answer:
            port = read_int(answer)  # type: ignore[no-untyped-call]
            secret = UTF8Deserializer().loads(answer)  # type: ignore[no-untyped-call]
        self._folder.cleanup()
        with _connecting:  # PySpark takes the way to a JVM that is there from the environment
            os.environ.update(zip(_WAYS, (str(port), secret), strict=True))
            try:
                gateway = launch_gateway()  # type: ignore[no-untyped-call]
            finally:
                for name in _WAYS:
                    os.environ.pop(name, None)
        gateway.proc = self.process
        return gateway

    def end(self) -> None:
        """For a Spark that is not wanted any more before it was there."""
        self.process.kill()
        self.process.wait()
        self._folder.cleanup()

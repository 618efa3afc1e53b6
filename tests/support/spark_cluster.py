"""A standalone Spark cluster of processes: a master and workers, as an operator would start them.

All of them listen on the loopback interface only. Executors are children of their worker; they end
when it does, or when their driver is gone.
"""

import sysconfig
import venv
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.support.ports import free_port
from tests.support.server_process import ServerProcess
from tests.support.spark_job import JAVA_OPTIONS
from tidelog.pipeline.java import find_java, java_home, package_folder

HOST = "127.0.0.1"
DAEMON_MEMORY = "256m"
WORKER_MEMORY = "1g"
WORKER_COUNT = 2


class SparkProcess(ServerProcess):
    """A class of Spark's with a `main`, which says a sentence when it is ready."""

    def __init__(self, folder: Path, *, main: str, arguments: Sequence[str], ready: str) -> None:
        super().__init__(folder)
        self._main = main
        self._arguments = list(arguments)
        self._ready = ready

    def command(self) -> Sequence[str]:
        spark_home = package_folder("pyspark")
        assert spark_home is not None
        # Ends up as `java` under the same process id.
        return [str(spark_home / "bin" / "spark-class"), self._main, *self._arguments]

    def environment(self) -> Mapping[str, str]:
        return {
            "JAVA_HOME": str(java_home(find_java())),
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            # What is next to the driver is not next to its workers.
            "PYTHONPATH": "",
        }

    def is_ready(self) -> bool:
        return self._ready in self.log_text_of_this_start()


class SparkCluster:
    """One master and two workers of a core each, stopped on the way out."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._running = ExitStack()
        self.master_process = SparkProcess(
            folder / "master",
            main="org.apache.spark.deploy.master.Master",
            arguments=["--host", HOST, "--port", str(self.port), "--webui-port", "0"],
            ready="New state: ALIVE",
        )
        self.workers = [
            SparkProcess(
                folder / f"worker-{number}",
                main="org.apache.spark.deploy.worker.Worker",
                arguments=[
                    *("--host", HOST, "--webui-port", "0", "--cores", "1"),
                    *("--memory", WORKER_MEMORY, self.master),
                ],
                ready="Successfully registered with master",
            )
            for number in range(WORKER_COUNT)
        ]

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            starting.enter_context(self.master_process)
            for worker in self.workers:
                starting.callback(worker.kill)
                worker.launch()
            for worker in self.workers:
                worker.wait_ready()
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        # Gently: a worker that is told to stop takes its executors with it at once.
        for worker in self.workers:
            if worker.is_running:
                worker.stop()
        self._running.close()


def python_without(folder: Path, *packages: str) -> Path:
    """A Python that has all that is installed here except `packages`: a worker's, elsewhere."""
    venv.create(folder, with_pip=False, symlinks=True)
    [target] = folder.glob("lib/python*/site-packages")
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        # An editable installation is a `.pth` file.
        name = installed.name.partition(".")[0].partition("-")[0]
        if name not in packages and installed.suffix != ".pth":
            (target / installed.name).symlink_to(installed)
    return folder / "bin" / "python"

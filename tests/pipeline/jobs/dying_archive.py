"""Archives a topic and kills itself with -9: before one of its commits of chunks, or behind it."""

import os
import signal
import sys
from typing import Any

from tests.support.spark_job import CORE_COUNT, SETTINGS
from tidelog.pipeline.archive import ArchiveSettings, archive_topic
from tidelog.pipeline.archive.manifest import Commit
from tidelog.pipeline.archive.manifest_log import ManifestLog
from tidelog.pipeline.session import spark_session


def main() -> None:
    bootstrap, topic, root, point, commits_before = sys.argv[1:]
    commit = ManifestLog.commit
    seen: list[int] = []

    def dying(self: ManifestLog, **arguments: Any) -> Commit:
        is_last = bool(arguments["added"]) and len(seen) == int(commits_before)
        if is_last and point == "files":
            os.kill(os.getpid(), signal.SIGKILL)
        made = commit(self, **arguments)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        if arguments["added"]:
            seen.append(made.version)
        return made

    ManifestLog.commit = dying  # type: ignore[method-assign]
    spark = spark_session(
        app_name="dying-archive", master=f"local[{CORE_COUNT}]", settings=SETTINGS
    )
    archive_topic(
        spark,
        ArchiveSettings(
            topic=topic,
            root=root,
            kafka={"kafka.bootstrap.servers": bootstrap},
            target_bytes=20_000,
        ),
        is_once=True,
    )


if __name__ == "__main__":
    main()

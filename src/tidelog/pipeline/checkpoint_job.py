"""Says in a checkpoint which job it is of, and refuses it to another one (X4).

Spark compares how rows of a state look, not what they mean. With the checkpoint of another job, one
that de-duplicates by another id forgets all that were seen, one with other windows mixes both kinds
of them, and one of another kind reads nothing, since all has been read. Nothing of that would be
said.

So the first run leaves a file beside what Spark keeps. Until a micro-batch was begun it is no more
than a draft: who gave a wrong option, and was told so, may give another one.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from pyarrow import fs

from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.forgotten_marks import is_begun, located

FILE: Final = "tidelog-job.json"


def require_same_job(checkpoint: str, job: Mapping[str, str]) -> None:
    """Raises OptionError if the checkpoint is of another job; if it is of none, it is of this one.

    A checkpoint that pyarrow cannot read is not looked at.
    """
    with suppress(OSError, ValueError):
        system, path = located(checkpoint)
        before = _job_in(system, path) if is_begun(checkpoint) else None
        if before is None:
            system.create_dir(path, recursive=True)
            with system.open_output_stream(f"{path}/{FILE}") as file:
                file.write(json.dumps(job).encode())
            return
        for name in [*before, *job]:
            was, now = before.get(name), job.get(name)
            if was != now:
                raise OptionError(
                    f"the checkpoint {checkpoint} is of another job ({name} was {was}, and is "
                    f"{now} now): give this one a checkpoint of its own, or remove {FILE} from "
                    "that one if it shall go on like this"
                )


def _job_in(system: fs.FileSystem, path: str) -> dict[str, str] | None:
    try:
        with system.open_input_stream(f"{path}/{FILE}") as file:
            found = json.loads(file.read())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None

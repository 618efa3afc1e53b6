"""Write into every transcript what its commands lead to now: `python -m tests.scenarios.update`."""

from tests.scenarios.transcript import replay
from tests.scenarios.worlds import TRANSCRIPTS, WORLDS


def main() -> None:
    for path in TRANSCRIPTS:
        path.write_text(replay(path.read_text(encoding="utf-8"), WORLDS), encoding="utf-8")


if __name__ == "__main__":
    main()

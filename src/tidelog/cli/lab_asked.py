"""A command of `tidelog lab` on a cluster that runs: at whom, for how long, and what it says (B3).

    find the cluster ──▶ aim ──▶ do ──▶ say ──▶ with --for: wait ──▶ undo ──▶ say

A first Ctrl-C ends the waiting, for a role or that of `--for`; what was done is undone all the
same.
"""

import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.brokers import cluster_folder
from tidelog.cli.interrupts import Interrupts
from tidelog.cli.output import listed, print_json, print_line
from tidelog.lab.errors import StartCancelled

if TYPE_CHECKING:
    from tidelog.lab.aiming import Aim, Eligible
    from tidelog.lab.harm import Harm, Undo
    from tidelog.lab.local_cluster import LocalCluster
    from tidelog.lab.targets import Target

_POLL_INTERVAL_S: Final = 0.05

TargetArgument: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET...",
        help="Broker numbers, 'leader of TOPIC:PARTITION', 'follower of TOPIC', 'controller', "
        "'group coordinator of GROUP', 'transaction coordinator of ID', 'minority', 'majority', "
        "'all' or 'random'.",
        show_default=False,
    ),
]
OptionalTarget: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TARGET...]", help="The same words as 'tidelog lab kill'.", show_default=False
    ),
]
ForOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--for", metavar="TIME", help="Undo it after so long: 500ms, 10s, 2m."),
]


@dataclass(frozen=True, slots=True)
class Done:
    """What was done, to whom if it is not who was aimed at, and how it is undone."""

    sentence: str
    undo: "Undo | None"
    ids: Sequence[int] | None = None
    facts: dict[str, object] | None = None


class Asked:
    """One command as it was typed."""

    def __init__(
        self,
        deed: str,
        words: Sequence[str],
        lasting: str | None,
        data: Path | None,
        *,
        as_json: bool,
    ) -> None:
        from tidelog.lab.targets import parse_target  # noqa: PLC0415 - loads clients

        self.target: Target | None = parse_target(words) if words else None
        self._deed = deed
        self._lasts_s = None if lasting is None else parse_option_time("--for", lasting)
        self._folder = cluster_folder(data)
        self._as_json = as_json

    def do(
        self,
        eligible: "Eligible",
        deed: "Callable[[Harm, Sequence[int], str], Done]",
        undone: Callable[[Sequence[int]], str],
    ) -> int:
        """Aim, do it, say so; with `--for` wait, undo it, and say that.

        `deed` is also told what to call its victims.
        """
        from tidelog.lab.harm import Harm  # noqa: PLC0415 - loads clients

        def aim_and_do(cluster: "LocalCluster", aim: "Aim") -> Done:
            harm = Harm(cluster)
            ids = self.aimed(aim, eligible)
            done = deed(harm, ids, self.named(ids))
            return Done(done.sentence, done.undo, ids, done.facts)

        return self.run(aim_and_do, undone)

    def run(
        self,
        do: "Callable[[LocalCluster, Aim], Done]",
        undone: Callable[[Sequence[int]], str] | None = None,
    ) -> int:
        from tidelog.lab.aiming import Aim  # noqa: PLC0415
        from tidelog.lab.local_cluster import LocalCluster  # noqa: PLC0415

        with Interrupts() as interrupts:
            cluster = LocalCluster.find(self._folder, interrupts.at_least(2))
            aim = Aim(cluster, random.SystemRandom(), is_cancelled=interrupts.at_least(1))
            try:
                done = do(cluster, aim)
                self._say(done.sentence, done.ids, done.facts or {}, is_undone=False)
                if self._lasts_s is not None and done.undo is not None and undone is not None:
                    sys.stdout.flush()
                    _wait(self._lasts_s, interrupts.at_least(1))
                    done.undo()
                    ids = done.ids or ()
                    self._say(undone(ids), ids, {}, is_undone=True)
            except StartCancelled:
                return 130
        return 0

    def aimed(self, aim: "Aim", eligible: "Eligible") -> list[int]:
        assert self.target is not None, "typer wants one"
        return aim.brokers(self.target, eligible)

    def named(self, ids: Sequence[int]) -> str:
        """`broker 2`, or `broker 2 (leader of orders-0)` where people have not named it."""
        from tidelog.lab.targets import BrokersTarget  # noqa: PLC0415

        is_told = self.target is None or isinstance(self.target, BrokersTarget)
        return broker_list(ids) if is_told else f"{broker_list(ids)} ({self.target})"

    def _say(
        self,
        sentence: str,
        ids: Sequence[int] | None,
        facts: dict[str, object],
        *,
        is_undone: bool,
    ) -> None:
        if self._as_json:
            print_json(
                {
                    "deed": self._deed,
                    "undone": is_undone,
                    **({} if self.target is None else {"target": str(self.target)}),
                    **({} if ids is None else {"brokers": list(ids)}),
                    **facts,
                }
            )
            return
        print_line(f"{sentence}.")


def parse_option_time(option: str, text: str) -> float:
    from tidelog.lab.schedule_language import parse_time  # noqa: PLC0415

    try:
        return parse_time(text)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from None


def _wait(seconds: float, is_enough: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + seconds
    while (left_s := ends_at - time.monotonic()) > 0 and not is_enough():
        time.sleep(min(left_s, _POLL_INTERVAL_S))


def broker_list(ids: Sequence[int]) -> str:
    """`broker 1`, `brokers 1 and 2`."""
    return f"broker{'s' if len(ids) > 1 else ''} {listed(ids)}"

"""What `tidelog lab` does to brokers of a cluster that runs: kill, pause, partition, ... (B3).

Every command is aimed at brokers by number or by role (`lab/targets.py`), says whom it has hit, and
leaves it at that: another one undoes it. With `--for` it waits, undoes it itself and says so.
"""

import random
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.lab_asked import (
    Asked,
    Done,
    ForOption,
    OptionalTarget,
    TargetArgument,
    broker_list,
    parse_option_time,
)
from tidelog.cli.options import DataOption, JsonOption
from tidelog.cli.output import listed
from tidelog.lab.errors import LabError

if TYPE_CHECKING:
    from tidelog.lab.aiming import Aim
    from tidelog.lab.harm import Harm, Link
    from tidelog.lab.local_cluster import LocalCluster

FromOption: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--from",
        metavar="WHOM",
        help="'others' (brokers), 'clients', 'zookeeper', 'everybody' or a broker's number; may be "
        "repeated.",
    ),
]
TopicOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC",
        help="Only logs of this topic; may be repeated.",
        show_default="the target's, or all",
    ),
]


def register(lab: typer.Typer) -> None:
    for name, command in (
        ("kill", kill),
        ("stop", stop),
        ("restart", restart),
        ("pause", pause),
        ("resume", resume),
        ("partition", partition),
        ("slow", slow),
        ("heal", heal),
        ("expire", expire),
        ("fill-disk", fill_disk),
        ("make-room", make_room),
        ("tear", tear),
        ("corrupt", corrupt),
    ):
        lab.command(name, rich_help_panel="On a cluster that runs")(command)


# -- processes -----------------------------------------------------------------------------------


def kill(
    target: TargetArgument,
    *,
    lasting: ForOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> int:
    """End brokers at once, as kill -9 does; 'tidelog lab restart' starts them again."""
    from tidelog.lab.aiming import RUNNING  # noqa: PLC0415 - loads clients

    asked = Asked("kill", target, lasting, data, as_json=as_json)
    return asked.do(
        RUNNING, lambda harm, ids, whom: Done(f"Killed {whom}", harm.kill(ids)), _started_again
    )


def stop(
    target: TargetArgument,
    *,
    lasting: ForOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> int:
    """Stop brokers cleanly: they hand over what they lead first."""
    from tidelog.lab.aiming import AWAKE  # noqa: PLC0415

    asked = Asked("stop", target, lasting, data, as_json=as_json)
    return asked.do(
        AWAKE, lambda harm, ids, whom: Done(f"Stopped {whom}", harm.stop(ids)), _started_again
    )


def restart(
    target: OptionalTarget = None, *, data: DataOption = None, as_json: JsonOption = False
) -> int:
    """Start brokers again, those that run after a clean stop; without TARGET all that are down.

    All of them at once; 'tidelog restart' does it one after the other.
    """
    from tidelog.lab.aiming import ANYBODY, DOWN, PAUSED  # noqa: PLC0415

    def do(cluster: "LocalCluster", aim: "Aim") -> Done:
        ids = asked.aimed(aim, ANYBODY) if target else aim.eligible(DOWN)
        if not ids:
            return Done("No broker is down", None)
        paused = set(aim.eligible(PAUSED))
        for broker_id in ids:
            if broker_id in paused:  # It would not hear that it is to stop.
                cluster.resume(broker_id)
        cluster.restart(*ids)
        return Done(f"Started {asked.named(ids)} again", None, ids)

    asked = Asked("restart", target or [], None, data, as_json=as_json)
    return asked.run(do)


def pause(
    target: TargetArgument,
    *,
    lasting: ForOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> int:
    """Stop brokers in their tracks (SIGSTOP): they hang up on nobody, and answer nobody."""
    from tidelog.lab.aiming import AWAKE  # noqa: PLC0415

    asked = Asked("pause", target, lasting, data, as_json=as_json)
    return asked.do(
        AWAKE, lambda harm, ids, whom: Done(f"Paused {whom}", harm.pause(ids)), _resumed
    )


def resume(
    target: OptionalTarget = None, *, data: DataOption = None, as_json: JsonOption = False
) -> int:
    """Let brokers go on that were paused (SIGCONT); without TARGET all of them."""
    from tidelog.lab.aiming import PAUSED  # noqa: PLC0415

    def do(cluster: "LocalCluster", aim: "Aim") -> Done:
        ids = asked.aimed(aim, PAUSED) if target else aim.eligible(PAUSED)
        for broker_id in ids:
            cluster.resume(broker_id)
        return Done(f"Resumed {asked.named(ids)}" if ids else "No broker is paused", None, ids)

    asked = Asked("resume", target or [], None, data, as_json=as_json)
    return asked.run(do)


# -- links ---------------------------------------------------------------------------------------


def partition(
    target: TargetArgument,
    *,
    others: FromOption = ["everybody"],  # noqa: B006 - typer copies it
    lasting: ForOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> int:
    """Cut brokers off: no byte passes, and nobody is told. Needs 'tidelog up --network'."""
    from tidelog.lab.aiming import RUNNING  # noqa: PLC0415

    def cut(harm: "Harm", ids: Sequence[int], whom: str) -> Done:
        links = _links(harm, ids, others)
        return Done(f"Cut {whom} off from {_whom(others)}", harm.cut(links), facts={"from": others})

    asked = Asked("partition", target, lasting, data, as_json=as_json)
    return asked.do(RUNNING, cut, _healed)


def slow(
    target: TargetArgument,
    *,
    by: Annotated[str, typer.Option(metavar="TIME", help="How much longer each way takes.")],
    others: FromOption = ["everybody"],  # noqa: B006 - typer copies it
    lasting: ForOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> int:
    """Let bytes between brokers and others take longer. Needs 'tidelog up --network'."""
    from tidelog.lab.aiming import RUNNING  # noqa: PLC0415

    delay_s = parse_option_time("--by", by)
    if delay_s == 0:
        raise ConfigError("--by is 0, which is not slow; 'tidelog lab heal' ends it")

    def delay(harm: "Harm", ids: Sequence[int], whom: str) -> Done:
        links = _links(harm, ids, others)
        return Done(
            f"Slowed the way between {whom} and {_whom(others)} down by {by}",
            harm.slow(links, delay_s=delay_s),
            facts={"from": others, "by_ms": round(1_000 * delay_s)},
        )

    asked = Asked("slow", target, lasting, data, as_json=as_json)
    return asked.do(RUNNING, delay, _healed)


def heal(
    target: OptionalTarget = None, *, data: DataOption = None, as_json: JsonOption = False
) -> int:
    """Let bytes pass again as they did; without TARGET all links of all brokers."""
    from tidelog.lab.aiming import ANYBODY  # noqa: PLC0415
    from tidelog.lab.harm import Harm  # noqa: PLC0415
    from tidelog.lab.network.parties import broker_party  # noqa: PLC0415

    def do(cluster: "LocalCluster", aim: "Aim") -> Done:
        network = Harm(cluster).network
        links = network.status().links
        ids: Sequence[int] | None = None
        if target:
            ids = asked.aimed(aim, ANYBODY)
            parties = {broker_party(each) for each in ids}
            links = tuple(link for link in links if {link.a, link.b} & parties)
        for link in links:
            network.heal(link.a, link.b)
        healed = [[link.a, link.b] for link in links]
        names = [f"{link.a} and {link.b}" for link in links]
        sentence = f"Healed {'; '.join(names)}" if names else "No link was cut or slow"
        return Done(sentence, None, ids, facts={"links": healed})

    asked = Asked("heal", target or [], None, data, as_json=as_json)
    return asked.run(do)


def _links(harm: "Harm", ids: Sequence[int], others: Sequence[str]) -> "list[Link]":
    from tidelog.lab.fault_kinds import Others  # noqa: PLC0415
    from tidelog.lab.network.parties import broker_party  # noqa: PLC0415

    known = {route.party for route in harm.network.status().routes}
    words = [each.value for each in Others]
    links: list[Link] = []
    for whom in others:
        if whom in words:
            found = harm.links(Others(whom), ids)
            if not found:
                raise LabError(f"nobody is there to cut {broker_list(ids)} off from: no {whom}")
            links += found
        elif not whom.isdecimal():
            raise ConfigError(
                f"--from is '{whom}' but must be {', '.join(words)} or the number of a broker"
            )
        elif int(whom) in ids:
            raise LabError(f"broker {whom} cannot be cut off from itself")
        elif broker_party(int(whom)) not in known:
            raise LabError(f"there is no broker {whom} in the network")
        else:
            links.append(([broker_party(each) for each in ids], [broker_party(int(whom))]))
    return links


def _whom(others: Sequence[str]) -> str:
    names = {"others": "the other brokers", "clients": "clients", "zookeeper": "ZooKeeper"}
    return listed(
        [f"broker {each}" if each.isdecimal() else names.get(each, each) for each in others]
    )


# -- sessions and disks --------------------------------------------------------------------------


def expire(target: TargetArgument, *, data: DataOption = None, as_json: JsonOption = False) -> int:
    """Have the coordination sessions of brokers declared dead; they begin others by themselves."""
    from tidelog.lab.aiming import RUNNING  # noqa: PLC0415

    def end(harm: "Harm", ids: Sequence[int], whom: str) -> Done:
        plural = "s" if len(ids) > 1 else ""
        return Done(f"Ended the session{plural} of {whom}", harm.expire(ids))

    asked = Asked("expire", target, None, data, as_json=as_json)
    return asked.do(RUNNING, end, _resumed)


def fill_disk(
    target: TargetArgument,
    *,
    lasting: ForOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> int:
    """Leave no room on the disks of brokers' logs. Needs 'tidelog up --small-disks'."""
    from tidelog.lab.aiming import ANYBODY  # noqa: PLC0415

    asked = Asked("fill-disk", target, lasting, data, as_json=as_json)
    return asked.do(
        ANYBODY,
        lambda harm, ids, whom: Done(f"Filled {_disks(ids, whom)}", harm.fill_disks(ids)),
        lambda ids: f"Made room on {_disks(ids, broker_list(ids))}",
    )


def make_room(
    target: OptionalTarget = None, *, data: DataOption = None, as_json: JsonOption = False
) -> int:
    """Undo 'tidelog lab fill-disk'; without TARGET on all disks."""
    from tidelog.lab import small_disks  # noqa: PLC0415
    from tidelog.lab.aiming import ANYBODY  # noqa: PLC0415

    def do(cluster: "LocalCluster", aim: "Aim") -> Done:
        ids = asked.aimed(aim, ANYBODY) if target else aim.eligible(ANYBODY)
        roomy = [each for each in ids if small_disks.make_room(cluster.folder.log_dir(each))]
        sentence = (
            f"Made room on {_disks(roomy, broker_list(roomy))}" if roomy else "No disk was filled"
        )
        return Done(sentence, None, roomy)

    asked = Asked("make-room", target or [], None, data, as_json=as_json)
    return asked.run(do)


def tear(
    target: TargetArgument,
    *,
    topics: TopicOption = None,
    lasting: ForOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> int:
    """Kill brokers, and cut the last batch of their logs in half, as a power cut may.

    Only what was not flushed. What no other replica has is lost.
    """
    from tidelog.lab.log_damage import tear_logs  # noqa: PLC0415

    asked = Asked("tear", target, lasting, data, as_json=as_json)
    return _damage(asked, topics, tear_logs, "tore the end of")


def corrupt(
    target: TargetArgument,
    *,
    topics: TopicOption = None,
    lasting: ForOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> int:
    """Kill brokers, and change a byte in the last batch of their logs, as a power cut may.

    Only what was not flushed. What no other replica has is lost.
    """
    from tidelog.lab.log_damage import change_bytes  # noqa: PLC0415

    asked = Asked("corrupt", target, lasting, data, as_json=as_json)
    return _damage(asked, topics, change_bytes, "changed a byte at the end of")


def _damage(
    asked: Asked,
    topics: Sequence[str] | None,
    how: Callable[[Path, Collection[str] | None, random.Random], int],
    verb: str,
) -> int:
    from tidelog.lab.aiming import RUNNING  # noqa: PLC0415
    from tidelog.lab.targets import PartitionTarget  # noqa: PLC0415

    if not topics and isinstance(asked.target, PartitionTarget):
        topics = [asked.target.topic]

    def do(harm: "Harm", ids: Sequence[int], whom: str) -> Done:
        count, undo = harm.damage(how, ids, topics or None, random.SystemRandom())
        what = f"{verb} {count} {'log' if count == 1 else 'logs'}"
        if not count:
            what = "found nothing that was not flushed, so its logs are whole"
        return Done(f"Killed {whom}, and {what}", undo, facts={"logs": count})

    return asked.do(RUNNING, do, _started_again)


# -- words ---------------------------------------------------------------------------------------


def _disks(ids: Sequence[int], whom: str) -> str:
    return f"the disk{'s' if len(ids) > 1 else ''} of {whom}"


def _started_again(ids: Sequence[int]) -> str:
    return f"Started {broker_list(ids)} again"


def _resumed(ids: Sequence[int]) -> str:
    return f"Resumed {broker_list(ids)}"


def _healed(ids: Sequence[int]) -> str:
    return f"Healed the links of {broker_list(ids)}"

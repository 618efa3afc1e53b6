"""`tidelog up`: a local cluster with nothing to prepare.

What happens once it is up, and nobody wants to detach it, is in `foreground.py`.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.brokers import cluster_folder
from tidelog.cli.foreground import Foreground, show_last_lines
from tidelog.cli.interrupts import Interrupts
from tidelog.cli.options import DEFAULT_BOOTSTRAP, DataOption, JsonOption, Panel, SetOption
from tidelog.cli.output import complain, listed, print_heading, print_json, print_line
from tidelog.cli.program import command_for, program
from tidelog.config.properties import parse_assignment
from tidelog.lab.errors import (
    AlreadyRunning,
    BrokerDied,
    FolderUnusable,
    NotReady,
    PortInUse,
    StartCancelled,
)
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.plan import (
    DEFAULT_BROKER_COUNT,
    FIRST_BROKER_ID,
    SQLITE,
    ClusterPlan,
    Profile,
    chosen_settings,
    require_coordination,
)
from tidelog.lab.ports import PORT_MAX
from tidelog.lab.proxied import proxy_ports, seen_by_clients
from tidelog.lab.small_disks import SIZE_MAX_MIB, NoSmallDisk, is_small_disk, why_no_small_disks
from tidelog.lab.starting import Patience, StartedBroker
from tidelog.lab.surrounded import start_surrounded

_HOST: Final = "127.0.0.1"
_BROKER_COUNT_MAX: Final = 99
_READY_WITHIN_S: Final = 60.0
_DISK_MIN_MIB: Final = 8


def register(app: typer.Typer) -> None:
    app.command("up", rich_help_panel=Panel.LOCAL)(run)


def run(
    *,
    brokers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_BROKER_COUNT_MAX,
            help="How many brokers, each a process of its own.",
            show_default=f"{DEFAULT_BROKER_COUNT}, or as many as the folder has",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=PORT_MAX,
            help="Port of broker 1; the others have those that follow. 0 is any free ones.",
        ),
    ] = 9092,
    data: DataOption = None,
    coordination: Annotated[
        str,
        typer.Option(
            metavar="sqlite|zookeeper:HOSTS",
            help="Who keeps the cluster together: a file in the data folder, or a ZooKeeper "
            "ensemble, as in zookeeper:HOST:PORT,HOST:PORT/CHROOT.",
        ),
    ] = SQLITE,
    profile: Annotated[
        Profile | None,
        typer.Option(
            help="Settings that go together. reliable: three replicas of every topic, two in sync "
            "or acks=all is refused, no unclean election."
        ),
    ] = None,
    assignments: SetOption = [],  # noqa: B006 - typer copies it
    network: Annotated[
        bool,
        typer.Option(
            "--network",
            help="Proxies between brokers, clients and ZooKeeper, so that 'tidelog lab partition' "
            "and 'slow' work.",
        ),
    ] = False,
    small_disks: Annotated[
        int | None,
        typer.Option(
            metavar="MIB",
            min=_DISK_MIN_MIB,
            max=SIZE_MAX_MIB,
            help="A disk of that size in memory for each broker's logs, so that 'tidelog lab "
            "fill-disk' works; takes root. 'down' copies the logs back.",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once it is ready; see 'tidelog down'.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Start a local cluster.

    Without --detach it stays in the foreground, says what becomes of its brokers, and Ctrl-C
    stops it cleanly. Exit 1 if the last broker dies, 2 if it cannot start as asked.
    """
    folder = cluster_folder(data)
    before = folder.broker_ids()
    count = brokers or max(DEFAULT_BROKER_COUNT, *before, 0)
    if port + count - 1 > PORT_MAX:
        raise ConfigError(f"--port is {port} but {count} brokers need ports up to {PORT_MAX}")
    plan = ClusterPlan(
        broker_count=count,
        host=_HOST,
        port=port,
        coordination=require_coordination(coordination),
        settings=chosen_settings(count, profile, dict(map(parse_assignment, assignments))),
        listening_ports={},
        advertised_ports={},
    )
    _require_possible(plan, has_network=network, disk_mib=small_disks)
    with Interrupts() as interrupts:
        began = time.monotonic()
        started = _start(folder, plan, interrupts, has_network=network, disk_mib=small_disks)
        if isinstance(started, int):
            return started
        took_s = time.monotonic() - began
        foreground = Foreground(folder, started, interrupts)
        if detach:
            _announce(folder, plan, profile, started, took_s, as_json=as_json, is_detached=True)
            _warn_of_absent(folder, plan, before)
            return 0
        try:
            _announce(folder, plan, profile, started, took_s, as_json=as_json, is_detached=False)
            _warn_of_absent(folder, plan, before)
            return foreground.watch()
        finally:
            # Nothing left to do, unless nobody reads what we print any more.
            foreground.stop_the_rest()


def _require_possible(plan: ClusterPlan, *, has_network: bool, disk_mib: int | None) -> None:
    if has_network:
        for name in ("listeners", "advertised.listeners"):
            if name in plan.settings:
                raise ConfigError(f"{name} cannot be given with --network, which chooses it")
    if disk_mib is not None:
        reason = why_no_small_disks()
        if reason is not None:
            raise ConfigError(f"--small-disks is not possible here: {reason}")
        if "log.dirs" in plan.settings or "log.dir" in plan.settings:
            raise ConfigError("log.dirs cannot be given with --small-disks, which chooses it")


def _start(
    folder: ClusterFolder,
    plan: ClusterPlan,
    interrupts: Interrupts,
    *,
    has_network: bool,
    disk_mib: int | None,
) -> tuple[StartedBroker, ...] | int:
    """The brokers if all went well, else the exit code."""
    patience = Patience(_READY_WITHIN_S, is_cancelled=interrupts.at_least(1))
    try:
        return start_surrounded(folder, plan, patience, has_network=has_network, disk_mib=disk_mib)
    except StartCancelled:
        return 130
    except PortInUse as error:
        raise ConfigError(f"{error}; {_ports_needed(plan)}") from error
    except NoSmallDisk as error:
        raise ConfigError(f"--small-disks {disk_mib}: {error}") from error
    except FolderUnusable as error:
        raise ConfigError(f"{error}; name another with --data") from error
    except AlreadyRunning as error:
        raise ConfigError(
            f"{error}; stop it with '{command_for('down', error.folder)}' "
            "or name another folder with --data"
        ) from error
    except BrokerDied as error:
        if error.sentence is not None:
            complain(f"broker {error.broker_id}: {error.sentence}", command="tidelog up")
        else:
            complain(f"{error} while starting; its last lines:", command="tidelog up")
            show_last_lines(error.last_lines)
        return 2 if error.exit_code == 2 else 1
    except NotReady as error:
        complain(f"{error}; its last lines:", command="tidelog up")
        show_last_lines(error.last_lines)
        return 1


def _ports_needed(plan: ClusterPlan) -> str:
    if plan.broker_count == 1:
        return "choose another with --port"
    last = plan.port + plan.broker_count - 1
    return f"the brokers need {plan.port} to {last}; choose others with --port"


def _warn_of_absent(folder: ClusterFolder, plan: ClusterPlan, before: Sequence[int]) -> None:
    """Say which replicas are missing if the folder has had more brokers than it has now."""
    absent = {
        broker_id: folder.replica_count(broker_id)
        for broker_id in before
        if broker_id not in plan.broker_ids
    }
    if any(absent.values()):
        who = listed([f"broker {each} ({count})" for each, count in absent.items()])
        again = command_for(f"up --brokers {max(before)}", folder.root)
        complain(
            f"not started, with so many replicas: {who}; partitions that nobody else holds are "
            f"offline until '{again}'",
            command="tidelog up",
        )


def _announce(
    folder: ClusterFolder,
    plan: ClusterPlan,
    profile: Profile | None,
    started: Sequence[StartedBroker],
    took_s: float,
    *,
    as_json: bool,
    is_detached: bool,
) -> None:
    states = [seen_by_clients(folder, broker.state) for broker in started]
    bootstrap = ",".join(state.address for state in states)
    if as_json:
        print_json(
            {
                "bootstrap": bootstrap,
                "data": str(folder.root),
                "coordination": plan.coordination,
                "profile": profile,
                "brokers": [
                    {"id": state.id, "host": state.host, "port": state.port, "pid": state.pid}
                    for state in states
                ],
            }
        )
    else:
        count = len(states)
        print_heading(
            f"tidelog is up: {count} broker{'s' if count > 1 else ''}, ready in {took_s:.2f} s"
        )
        for line in (
            "",
            *_facts(folder, plan, profile, bootstrap),
            "",
            "Try, in another terminal:",
            "",
            *_suggestions(folder.root, bootstrap, count),
            "",
            f"Stop it with:  {command_for('down', folder.root)}"
            if is_detached
            else "Ctrl-C stops it.",
        ):
            print_line(line)
    sys.stdout.flush()


def _facts(
    folder: ClusterFolder, plan: ClusterPlan, profile: Profile | None, bootstrap: str
) -> list[str]:
    facts = {"bootstrap": bootstrap, "data": str(folder.root)}
    number = "*" if plan.broker_count > 1 else "1"
    facts["log"] = str(folder.root / f"broker-{number}" / "broker.log")
    if plan.coordination != SQLITE:
        facts["zookeeper"] = plan.coordination.partition(":")[2]
    if proxy_ports(folder):
        facts["network"] = f"can be cut: {command_for('lab partition 1', folder.root)}"
    if is_small_disk(folder.log_dir(FIRST_BROKER_ID)):
        facts["disks"] = "in memory until 'down' copies the logs back; 'lab fill-disk' fills one"
    replicas = plan.settings["default.replication.factor"]
    if profile is Profile.RELIABLE:
        in_sync = plan.settings["min.insync.replicas"]
        facts["reliable"] = (
            f"{replicas} replicas of every topic, {in_sync} of them in sync or acks=all is refused"
        )
        facts[""] = "have your producers use acks=all; 'tidelog produce' does"
    elif plan.broker_count > 1:
        facts["topics"] = (
            f"{replicas} replica{'' if replicas == '1' else 's'}, unless you ask for another number"
        )
    return [f"  {name:<12}{value}" for name, value in facts.items()]


def _suggestions(data_folder: Path, bootstrap: str, broker_count: int) -> list[str]:
    tidelog = program()
    first = bootstrap.split(",", maxsplit=1)[0]
    target = "" if first == DEFAULT_BOOTSTRAP else f" --bootstrap {first}"
    suggestions = [
        f"{tidelog} topics create demo --partitions 3{target}",
        f"echo hello | {tidelog} produce demo{target}",
        f"{tidelog} consume demo --follow{target}",
    ]
    if broker_count > 1:
        suggestions.append(command_for("kill 2", data_folder))
        suggestions.append(command_for("restart 2", data_folder))
    return [f"  {suggestion}" for suggestion in suggestions]

"""`tidelog up`: a local cluster with nothing to prepare.

started ──▶ ready, address printed ──▶ watched: important lines are passed on
                                         │ Ctrl-C    ▶ SIGTERM, wait; again ▶ SIGKILL
                                         │ `down`    ▶ said, exit 0
                                         └ a death   ▶ said, with its last lines, exit 1
"""

import sys
import time
from typing import Annotated, Final

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.interrupts import Interrupts
from tidelog.cli.options import DEFAULT_BOOTSTRAP, DataOption, JsonOption, Panel, SetOption
from tidelog.cli.output import complain, print_heading, print_json, print_line
from tidelog.cli.program import command_for, program
from tidelog.config.properties import parse_assignment
from tidelog.lab.broker_output import is_important
from tidelog.lab.cluster import ClusterPlan, LocalCluster
from tidelog.lab.errors import (
    AlreadyRunning,
    BrokerDied,
    FolderUnusable,
    NotReady,
    PortInUse,
    StartCancelled,
)
from tidelog.lab.folder import ClusterFolder, default_data_folder

_HOST: Final = "127.0.0.1"
_BROKER_COUNT_MAX: Final = 1
_READY_WITHIN_S: Final = 60.0
_WATCH_INTERVAL_S: Final = 0.1
_GIVEN_BY_UP: Final = ("node.id", "broker.id")


def register(app: typer.Typer) -> None:
    app.command("up", rich_help_panel=Panel.LOCAL)(run)


def run(
    *,
    brokers: Annotated[int, typer.Option(min=1, help="How many brokers; one, so far.")] = 1,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the first broker; 0 is any free one.")
    ] = 9092,
    data: DataOption = None,
    assignments: SetOption = [],  # noqa: B006 - typer copies it
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once it is ready; see 'tidelog down'.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Start a local cluster.

    Without --detach it stays in the foreground, passes on what its brokers warn about, and
    Ctrl-C stops it cleanly. Exit 1 if a broker dies, 2 if it cannot start as asked.
    """
    if brokers > _BROKER_COUNT_MAX:
        raise ConfigError(f"--brokers is {brokers} but only a cluster of one can be started so far")
    settings = _settings(assignments)
    folder = ClusterFolder((data or default_data_folder()).expanduser().absolute())
    plan = ClusterPlan(broker_count=brokers, host=_HOST, port=port, settings=settings)
    cluster = LocalCluster(folder)
    with Interrupts() as interrupts:
        started = time.monotonic()
        failed = _start(cluster, plan, interrupts)
        if failed is not None:
            return failed
        took_s = time.monotonic() - started
        if detach:
            _announce(cluster, took_s, as_json=as_json, is_detached=True)
            return 0
        try:
            _announce(cluster, took_s, as_json=as_json, is_detached=False)
            return _watch(cluster, interrupts)
        finally:
            # Nothing left to do, unless nobody reads what we print any more.
            cluster.terminate()
            cluster.wait(is_impatient=interrupts.at_least(2))


def _settings(assignments: list[str]) -> dict[str, str]:
    settings = dict(map(parse_assignment, assignments))
    for name in _GIVEN_BY_UP:
        if name in settings:
            raise ConfigError(f"{name} is given by 'up' itself; use 'tidelog broker' to choose it")
    return settings


def _start(cluster: LocalCluster, plan: ClusterPlan, interrupts: Interrupts) -> int | None:
    """None if all went well, else the exit code."""
    try:
        cluster.start(plan, ready_within_s=_READY_WITHIN_S, is_cancelled=interrupts.at_least(1))
    except StartCancelled:
        return 130
    except PortInUse as error:
        raise ConfigError(f"{error}; choose another with --port") from error
    except FolderUnusable as error:
        raise ConfigError(f"{error}; name another with --data") from error
    except AlreadyRunning as error:
        raise ConfigError(
            f"{error}; stop it with '{command_for('down', error.folder)}' "
            "or name another folder with --data"
        ) from error
    except (BrokerDied, NotReady) as error:
        complain(f"{error} while starting", command="tidelog up")
        _show_last_lines(error.last_lines)
        return 2 if isinstance(error, BrokerDied) and error.exit_code == 2 else 1
    return None


def _announce(cluster: LocalCluster, took_s: float, *, as_json: bool, is_detached: bool) -> None:
    if as_json:
        print_json(
            {
                "bootstrap": cluster.bootstrap,
                "data": str(cluster.folder.root),
                "brokers": [
                    {"id": state.id, "host": state.host, "port": state.port, "pid": state.pid}
                    for state in cluster.states
                ],
            }
        )
    else:
        heading, *lines = _welcome(cluster, took_s, is_detached=is_detached)
        print_heading(heading)
        for line in lines:
            print_line(line)
    sys.stdout.flush()


def _welcome(cluster: LocalCluster, took_s: float, *, is_detached: bool) -> list[str]:
    folder = cluster.folder
    tidelog = program()
    bootstrap = cluster.bootstrap
    target = "" if bootstrap == DEFAULT_BOOTSTRAP else f" --bootstrap {bootstrap}"
    count = len(cluster.brokers)
    stop = (
        f"Stop it with:  {command_for('down', folder.root)}" if is_detached else "Ctrl-C stops it."
    )
    return [
        f"tidelog is up: {count} broker{'s' if count > 1 else ''}, ready in {took_s:.2f} s",
        "",
        f"  bootstrap   {bootstrap}",
        f"  data        {folder.root}",
        f"  log         {folder.output_file(cluster.states[0].id)}",
        "",
        "Try, in another terminal:",
        "",
        f"  {tidelog} topics create demo --partitions 3{target}",
        f"  echo hello | {tidelog} produce demo{target}",
        f"  {tidelog} consume demo --follow{target}",
        "",
        stop,
    ]


def _watch(cluster: LocalCluster, interrupts: Interrupts) -> int:
    while cluster.died() is None:
        if interrupts.count:
            return _stop(cluster, interrupts)
        _pass_on_output(cluster)
        time.sleep(_WATCH_INTERVAL_S)
    return _after_death(cluster, interrupts)


def _pass_on_output(cluster: LocalCluster) -> None:
    for broker in cluster.brokers:
        for line in filter(is_important, broker.output.new_lines()):
            sys.stderr.write(f"broker {broker.state.id}: {line}\n")


def _stop(cluster: LocalCluster, interrupts: Interrupts) -> int:
    print_line("\nStopping; Ctrl-C again kills.")
    sys.stdout.flush()
    started = time.monotonic()
    cluster.terminate()
    if not cluster.wait(is_impatient=interrupts.at_least(2)):
        cluster.kill()
        complain("killed; the next start has to check its logs", command="tidelog up")
        return 1
    _pass_on_output(cluster)
    failed = [broker for broker in cluster.brokers if broker.child.returncode != 0]
    for broker in failed:
        complain(f"{cluster.death_of(broker)} while stopping", command="tidelog up")
    if failed:
        return 1
    print_line(f"Stopped cleanly in {time.monotonic() - started:.2f} s.")
    return 0


def _after_death(cluster: LocalCluster, interrupts: Interrupts) -> int:
    dead = cluster.died()
    assert dead is not None
    death = cluster.death_of(dead)
    cluster.terminate()
    if not cluster.wait(is_impatient=interrupts.at_least(1)):
        cluster.kill()
    if death.exit_code == 0:
        print_line(f"Broker {death.broker_id} was stopped by somebody else.")
        return 0
    complain(f"{death}; its last lines:", command="tidelog up")
    _show_last_lines(death.last_lines)
    return 1


def _show_last_lines(lines: tuple[str, ...]) -> None:
    for line in lines:
        sys.stderr.write(f"  {line}\n")

"""`tidelog zookeeper`: an ensemble on this machine, to try a cluster on ZooKeeper with.

It lives in the folder `zookeeper` of the data folder, beside a cluster that may use it.
"""

import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.interrupts import Interrupts
from tidelog.cli.options import DataOption, JsonOption, Panel
from tidelog.cli.output import complain, print_heading, print_json, print_line, print_table
from tidelog.cli.program import command_for
from tidelog.lab.errors import (
    AlreadyRunning,
    FolderUnusable,
    LabError,
    PortInUse,
    StartCancelled,
)
from tidelog.lab.folder import default_data_folder
from tidelog.lab.zookeeper import (
    HOST,
    EnsembleNotReady,
    ServerDied,
    ZooKeeperEnsemble,
    forget_servers,
    running_servers,
    stop_server,
)

_FOLDER: Final = "zookeeper"
_SERVER_COUNT_MAX: Final = 9
_READY_WITHIN_S: Final = 60.0
_STOP_WITHIN_S: Final = 30.0
_WATCH_INTERVAL_S: Final = 0.1


def register(app: typer.Typer) -> None:
    zookeeper = typer.Typer(no_args_is_help=True, help="Start and stop a ZooKeeper ensemble.")
    zookeeper.command("up")(up)
    zookeeper.command("down")(down)
    app.add_typer(zookeeper, name="zookeeper", rich_help_panel=Panel.LOCAL)


def up(
    *,
    nodes: Annotated[
        int,
        typer.Option(
            min=1, max=_SERVER_COUNT_MAX, help="How many servers; three survive the loss of one."
        ),
    ] = 3,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the first server; 0 is any free one.")
    ] = 2181,
    data: DataOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once it is ready; see 'down'.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Start a ZooKeeper ensemble on this machine.

    It needs Java and the jars that pyspark has: 'pip install tidelog[zookeeper]' brings both.
    Without --detach it stays in the foreground and Ctrl-C stops it. Exit 1 if a server dies, 2 if
    it cannot start as asked.
    """
    data_folder = _absolute(data)
    ensemble = ZooKeeperEnsemble(data_folder / _FOLDER, server_count=nodes, port=port)
    with Interrupts() as interrupts:
        started = time.monotonic()
        failed = _start(ensemble, data_folder, interrupts)
        if failed is not None:
            return failed
        took_s = time.monotonic() - started
        if detach:
            _announce(ensemble, data_folder, took_s, as_json=as_json, is_detached=True)
            return 0
        try:
            _announce(ensemble, data_folder, took_s, as_json=as_json, is_detached=False)
            return _watch(ensemble, interrupts)
        finally:
            ensemble.stop()


def down(data: DataOption = None, as_json: JsonOption = False) -> int:
    """Stop the ZooKeeper ensemble of a data folder.

    Exit 0 once every server has ended, 1 if none was running or one did not stop in time.
    """
    folder = _absolute(data) / _FOLDER
    running = running_servers(folder)
    if not running:
        forget_servers(folder)
        raise LabError(f"no ZooKeeper ensemble is running in {folder}")
    started = time.monotonic()
    for server in running:
        if not stop_server(server, within_s=_STOP_WITHIN_S):
            raise LabError(
                f"server {server.id} (pid {server.pid}) did not stop within {_STOP_WITHIN_S:g} s"
            )
    forget_servers(folder)
    if as_json:
        print_json({"stopped": [server.id for server in running]})
    else:
        names = ", ".join(str(server.id) for server in running)
        print_line(f"Stopped server {names} in {time.monotonic() - started:.2f} s.")
    return 0


def _absolute(data: Path | None) -> Path:
    return (data or default_data_folder()).expanduser().absolute()


def _start(ensemble: ZooKeeperEnsemble, data_folder: Path, interrupts: Interrupts) -> int | None:
    """None if all went well, else the exit code."""
    try:
        ensemble.start(ready_within_s=_READY_WITHIN_S, is_cancelled=interrupts.at_least(1))
    except StartCancelled:
        return 130
    except PortInUse as error:
        raise ConfigError(f"{error}; choose another with --port") from error
    except FolderUnusable as error:
        raise ConfigError(f"{error}; name another with --data") from error
    except AlreadyRunning as error:
        raise ConfigError(
            f"{error}; stop it with '{command_for('zookeeper down', data_folder)}' "
            "or name another folder with --data"
        ) from error
    except (ServerDied, EnsembleNotReady) as error:
        complain(f"{error} while starting", command="tidelog zookeeper up")
        _show_last_lines(error.last_lines)
        return 1
    return None


def _announce(
    ensemble: ZooKeeperEnsemble,
    data_folder: Path,
    took_s: float,
    *,
    as_json: bool,
    is_detached: bool,
) -> None:
    leader = ensemble.leader()
    if as_json:
        servers = [
            {"id": each.id, "port": each.port, "pid": each.pid, "leader": each.id == leader}
            for each in ensemble.states
        ]
        print_json({"connect": ensemble.hosts, "data": str(ensemble.folder), "servers": servers})
    else:
        down_command = command_for("zookeeper down", data_folder)
        count = len(ensemble.states)
        print_heading(
            f"ZooKeeper is up: {count} server{'s' if count > 1 else ''}, ready in {took_s:.2f} s"
        )
        print_line()
        print_table(
            ["SERVER", "HOST", "PORT", "PID", "LEADER"],
            [
                [each.id, HOST, each.port, each.pid, "yes" if each.id == leader else "no"]
                for each in ensemble.states
            ],
        )
        print_line()
        print_line(f"  connect   {ensemble.hosts}")
        print_line(f"  data      {ensemble.folder}")
        print_line()
        print_line("Start a cluster that uses it:")
        print_line()
        up_command = command_for("up", data_folder)
        print_line(f"  {up_command} --coordination zookeeper:{ensemble.hosts}/tidelog")
        print_line()
        print_line(f"Stop it with:  {down_command}" if is_detached else "Ctrl-C stops it.")
    sys.stdout.flush()


def _watch(ensemble: ZooKeeperEnsemble, interrupts: Interrupts) -> int:
    while not interrupts.count:
        death = ensemble.died()
        if death is not None:
            return _after_death(ensemble, death)
        time.sleep(_WATCH_INTERVAL_S)
    ensemble.stop()
    print_line("\nStopped.")
    return 0


def _after_death(ensemble: ZooKeeperEnsemble, death: ServerDied) -> int:
    if not running_servers(ensemble.folder):
        print_line("The ensemble was stopped by somebody else.")
        return 0
    complain(f"{death}; its last lines:", command="tidelog zookeeper up")
    _show_last_lines(death.last_lines)
    return 1


def _show_last_lines(lines: tuple[str, ...]) -> None:
    for line in lines:
        sys.stderr.write(f"  {line}\n")

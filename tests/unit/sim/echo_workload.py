"""Two echo servers and their clients under faults; prints the digest of the run.

`test_replay.py` runs it in one process and in others with other hash seeds.
"""

import asyncio
import sys
from functools import partial
from pathlib import Path

from tests.unit.sim.networked import PORT, Peer, new_network
from tidelog.sim.disk import SimulatedDisk
from tidelog.sim.executor import SimulatedExecutor
from tidelog.sim.process import Process
from tidelog.sim.world import World

SERVERS = ("echo-1", "echo-2")
CLIENTS = ("client-1", "client-2", "client-3")
FILE = Path("/echoed")


class Workload:
    """Servers write down what they echo; clients ask, give up, connect again."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.network = new_network(world)
        self.faults = world.random_for("faults")
        self.disks = {
            name: SimulatedDisk(world, name, total_bytes=2**30, work_min_s=0.001, work_max_s=0.01)
            for name in SERVERS
        }
        self.servers = {name: world.spawn(name, self.serve) for name in SERVERS}
        self.answered = 0
        for name in CLIENTS:
            world.spawn(name, self.ask)

    async def serve(self, process: Process) -> None:
        disk = self.disks[process.name].attach(process)
        executor = SimulatedExecutor(process, self.disks[process.name])
        file = disk.open(FILE)

        def answer(data: bytes) -> bytes:
            file.append(data)
            executor.background(file.flush)
            return data

        network = self.network.attach(process, process.name)
        address = await network.reserve("", PORT, backlog=50)
        await address.listen(lambda: Peer(answer))
        await asyncio.Event().wait()

    async def ask(self, process: Process) -> None:
        network = self.network.attach(process, process.name)
        while True:
            peers = [Peer() for _ in SERVERS]
            try:
                async with asyncio.timeout(2), asyncio.TaskGroup() as tasks:
                    for name, peer in zip(SERVERS, peers, strict=True):
                        tasks.create_task(network.connect(name, PORT, partial(_this, peer)))
                await self.talk(process, peers)
            except* (OSError, TimeoutError):
                await asyncio.sleep(process.random.random())

    async def talk(self, process: Process, peers: list[Peer]) -> None:
        while not any(peer.losses for peer in peers):
            for peer in peers:
                peer.write(process.random.randbytes(process.random.randrange(1, 2_000)))
            waits = {asyncio.create_task(peer.ended.wait()) for peer in peers}
            done, pending = await asyncio.wait(
                waits, timeout=process.random.random() / 10, return_when=asyncio.FIRST_COMPLETED
            )
            for task in pending:
                task.cancel()
            self.answered += sum(len(peer.received) for peer in peers)
            if done:
                return

    def hurt(self) -> None:
        """One fault, chosen by chance."""
        one, other = self.faults.choice(SERVERS), self.faults.choice(CLIENTS)
        match self.faults.randrange(6):
            case 0:
                self.network.cut(one, other)
            case 1:
                self.network.heal_all()
            case 2:
                self.network.reset(one, other)
            case 3:
                self.servers[one].pause()
            case 4:
                self.servers[one].resume()
            case _:
                self.servers[one].kill()
                self.disks[one].power_cut(self.faults)
                self.servers[one] = self.world.spawn(one, self.serve)


def _this(peer: Peer) -> Peer:
    return peer


def run(seed: int) -> World:
    with World(seed, lines_max=1_000) as world:
        workload = Workload(world)
        for _ in range(60):
            world.run_for(workload.faults.random())
            workload.hurt()
        assert workload.answered > 0
        assert all(each.failure is None for each in world.processes)
    return world


if __name__ == "__main__":
    print(run(int(sys.argv[1])).trace.digest)  # noqa: T201 - what it is for

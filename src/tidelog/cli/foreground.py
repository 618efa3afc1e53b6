"""A cluster that somebody watches: what becomes of its brokers, and how it ends.

watched ──┬ important lines of brokers ▶ passed on
          ├ a death                    ▶ said, with how to start it again; the others run on
          ├ `restart`, `stop`, `kill`  ▶ said
          ├ the last one gone          ▶ exit 0 if it was stopped (`down`), 1 if it died
          └ Ctrl-C                     ▶ stopped in turn; again ▶ SIGKILL
"""

import sys
import time
from collections.abc import Sequence
from typing import Final

from tidelog.cli.interrupts import Interrupts
from tidelog.cli.output import complain, print_line
from tidelog.cli.program import command_for
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.running import end_leftovers, kill_broker, stop_cluster
from tidelog.lab.starting import StartedBroker
from tidelog.lab.state import BrokerState
from tidelog.lab.watch import BrokerEnded, BrokerStartedAgain, ClusterWatch

_INTERVAL_S: Final = 0.1


class Foreground:
    """Brokers that were just started, and somebody at a terminal."""

    def __init__(
        self, folder: ClusterFolder, started: Sequence[StartedBroker], interrupts: Interrupts
    ) -> None:
        self._folder = folder
        self._interrupts = interrupts
        self._watch = ClusterWatch(folder, started)

    def watch(self) -> int:
        """Say what happens until there is nothing to watch; the exit code."""
        is_clean = True
        while not self._interrupts.count:
            for news in self._watch.look():
                self._pass_on_output()
                if isinstance(news, BrokerEnded):
                    is_clean = news.is_clean
                self._tell(news)
            if self._watch.is_over():
                return 0 if is_clean else 1
            self._pass_on_output()
            time.sleep(_INTERVAL_S)
        return self._stop()

    def stop_the_rest(self) -> None:
        """Leave nothing running, however the watching ended."""
        self._stop_all()

    def _stop(self) -> int:
        print_line("\nStopping; Ctrl-C again kills.")
        sys.stdout.flush()
        began = time.monotonic()
        remaining = self._stop_all()
        for broker in remaining:
            kill_broker(broker)
        end_leftovers(self._folder)
        self._pass_on_output()
        if remaining:
            complain("killed; the next start has to check its logs", command="tidelog up")
            return 1
        failed = [
            news
            for news in self._watch.look()
            if isinstance(news, BrokerEnded) and not news.is_clean
        ]
        for end in failed:
            complain(f"broker {end.broker_id} {end.how} while stopping", command="tidelog up")
        if failed:
            return 1
        print_line(f"Stopped cleanly in {time.monotonic() - began:.2f} s.")
        return 0

    def _stop_all(self) -> tuple[BrokerState, ...]:
        is_impatient = self._interrupts.at_least(2)
        return stop_cluster(self._folder, self._watch.brokers, is_impatient=is_impatient)

    def _tell(self, news: BrokerEnded | BrokerStartedAgain) -> None:
        count = self._count(news.running_count)
        match news:
            case BrokerStartedAgain(broker):
                print_line(f"Broker {broker.id} runs again (pid {broker.pid}); {count}.")
            case BrokerEnded(is_clean=True):
                print_line(f"Broker {news.broker_id} {news.how}; {count}.")
            case BrokerEnded():
                self._tell_of_death(news)
        sys.stdout.flush()

    def _tell_of_death(self, end: BrokerEnded) -> None:
        what = f"broker {end.broker_id} {end.how}; {self._count(end.running_count)}"
        if end.running_count:
            again = command_for(f"restart {end.broker_id}", self._folder.root)
            what = f"{what}; '{again}' starts it again"
        complain(f"{what}; its last lines:" if end.last_lines else what, command="tidelog up")
        show_last_lines(end.last_lines)

    def _count(self, running: int) -> str:
        if not running:
            return "no broker is running any more"
        all_of_them = len(self._watch.brokers)
        return f"{running} of {all_of_them} brokers {'is' if running == 1 else 'are'} running"

    def _pass_on_output(self) -> None:
        for broker_id, line in self._watch.important_lines():
            sys.stderr.write(f"broker {broker_id}: {line}\n")


def show_last_lines(lines: tuple[str, ...]) -> None:
    for line in lines:
        sys.stderr.write(f"  {line}\n")

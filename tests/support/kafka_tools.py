"""Kafka's own command line tools, run as a user would run them."""

import subprocess
from dataclasses import dataclass

from tests.support.kafka_process import QUICK_START_FLAGS, java_command

TOOL_TIMEOUT_S = 120.0
TOOL_HEAP_FLAG = "-Xmx256m"


@dataclass(frozen=True, slots=True)
class ToolResult:
    exit_code: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        return f"exit code {self.exit_code}\n{self.stdout}\n{self.stderr}"


class ToolFailed(Exception):
    """A tool that had to succeed did not."""


def run_tool(main_class: str, *arguments: str, stdin: str = "") -> ToolResult:
    """Run to the end and return whatever came out."""
    command = java_command((*QUICK_START_FLAGS, TOOL_HEAP_FLAG), main_class, *arguments)
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
    )
    return ToolResult(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True, slots=True)
class KafkaTools:
    """The tools that talk to a broker. Each method returns what the tool printed."""

    bootstrap: str

    def topics(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.TopicCommand", *arguments)

    def configs(self, *arguments: str) -> str:
        return self._run("kafka.admin.ConfigCommand", *arguments)

    def producer_performance(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.ProducerPerformance", *arguments)

    def console_producer(self, *arguments: str, lines: str) -> str:
        return self._run("org.apache.kafka.tools.ConsoleProducer", *arguments, stdin=lines)

    def console_consumer(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments)

    def get_offsets(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.GetOffsetShell", *arguments)

    def delete_records(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.DeleteRecordsCommand", *arguments)

    def log_dirs(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.LogDirsCommand", *arguments)

    def leader_election(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.LeaderElectionCommand", *arguments)

    def reassign_partitions(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", *arguments)

    def consumer_groups(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *arguments)

    def transactions(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.TransactionsCommand", *arguments)

    def features(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.FeatureCommand", *arguments)

    def api_versions(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.BrokerApiVersionsCommand", *arguments)

    def attempt(self, main_class: str, *arguments: str) -> ToolResult:
        """For calls that the broker is expected to refuse."""
        return run_tool(main_class, "--bootstrap-server", self.bootstrap, *arguments)

    def _run(self, main_class: str, *arguments: str, stdin: str = "") -> str:
        result = run_tool(main_class, "--bootstrap-server", self.bootstrap, *arguments, stdin=stdin)
        if result.exit_code != 0:
            raise ToolFailed(f"{main_class} {' '.join(arguments)}: {result}")
        return result.stdout

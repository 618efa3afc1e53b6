"""`tidelog transactions`: who has one open, and how to end one that nobody will end."""

import time
from typing import Annotated, Final, TypeAlias

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.completion import complete_topic
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, Panel
from tidelog.cli.output import (
    duration_text,
    iso_time,
    print_heading,
    print_json,
    print_line,
    print_table,
)
from tidelog.cli.topics import unknown_topic
from tidelog.client.errors import RequestFailed
from tidelog.client.group_values import PartitionKey
from tidelog.client.transaction_values import (
    HangingTransaction,
    PartitionProducer,
    TransactionDescription,
)
from tidelog.client.transactions import Transactions

# Kafka's tool waits for the longest time-out that a transaction may have, and a bit.
_OLD_MINUTES: Final = 15
_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)

TopicArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)
]
PartitionOption: TypeAlias = Annotated[int, typer.Option("--partition", "-p", min=0)]


def register(app: typer.Typer) -> None:
    transactions = typer.Typer(
        no_args_is_help=True, help="See transactions, and end those that hang."
    )
    transactions.command("list")(list_)
    transactions.command("describe")(describe)
    transactions.command("producers")(producers)
    transactions.command("find-hanging")(find_hanging)
    transactions.command("abort")(abort)
    app.add_typer(transactions, name="transactions", rich_help_panel=Panel.CLUSTER)


def list_(
    *,
    states: Annotated[
        list[str],
        typer.Option("--state", metavar="STATE", help="Only in this one; may be repeated."),
    ] = [],  # noqa: B006 - typer copies it
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """List transactional ids; with --json, one object per line."""
    for state in states:
        if state not in _STATES:
            raise ConfigError(f"--state is '{state}' but must be one of {', '.join(_STATES)}")
    with Transactions(bootstrap) as transactions:
        listings = transactions.listings(states=states)
    if as_json:
        for each in listings:
            print_json(
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "state": each.state,
                    "coordinator": each.coordinator_id,
                }
            )
        return 0
    print_table(
        ["TRANSACTIONAL ID", "PRODUCER ID", "STATE", "COORDINATOR"],
        [
            [each.transactional_id, each.producer_id, each.state, each.coordinator_id]
            for each in listings
        ],
    )
    return 0


def describe(
    name: Annotated[str, typer.Argument(metavar="TRANSACTIONAL-ID", show_default=False)],
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Show what a transactional id is doing. Exit 1 if there is none of that name."""
    with Transactions(bootstrap) as transactions:
        described = transactions.describe(name)
    if as_json:
        print_json(_as_json(described))
        return 0
    print_heading(f"{name}: {described.state}, coordinator {described.coordinator_id}")
    started = "-" if described.started_ms is None else iso_time(described.started_ms)
    facts = [
        ("producer", f"{described.producer_id}, epoch {described.producer_epoch}"),
        ("time-out", duration_text(described.timeout_ms / 1_000)),
        ("started", started),
        ("partitions", ", ".join(map(str, described.partitions)) or "-"),
    ]
    for fact, value in facts:
        print_line(f"  {fact:<10}  {value}")
    return 0


def producers(
    topic: TopicArgument,
    *,
    partition: PartitionOption = 0,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """List the producers that the leader of a partition remembers."""
    with Transactions(bootstrap) as transactions:
        try:
            found = transactions.producers(topic, [partition])
        except RequestFailed as error:
            raise _worded(error, topic) from error
    if as_json:
        for each in found:
            print_json(_producer_as_json(each))
        return 0
    print_table(
        ["PRODUCER ID", "EPOCH", "LAST SEQUENCE", "LAST WRITTEN", "OPEN SINCE OFFSET"],
        [
            [
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                None if each.last_timestamp_ms is None else iso_time(each.last_timestamp_ms),
                each.open_since,
            ]
            for each in found
        ],
    )
    return 0


def find_hanging(
    *,
    topics: Annotated[
        list[str],
        typer.Option("--topic", metavar="TOPIC", help="Only there; may be repeated."),
    ] = [],  # noqa: B006 - typer copies it
    minutes: Annotated[
        int, typer.Option(min=0, help="Open, and not written to, for so long.")
    ] = _OLD_MINUTES,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """List open transactions that no coordinator will end. Exit 1 if there is one."""
    now_ms = round(time.time() * 1_000)
    with Transactions(bootstrap) as transactions:
        hanging = transactions.hanging(
            topics or transactions.topic_names(), now_ms=now_ms, older_than_ms=minutes * 60_000
        )
    if as_json:
        for each in hanging:
            print_json({**_producer_as_json(each.producer), "age_ms": each.age_ms})
    elif hanging:
        _print_hanging(hanging)
    else:
        print_line("No transaction hangs.")
    return 1 if hanging else 0


def abort(
    topic: TopicArgument,
    *,
    partition: PartitionOption,
    start_offset: Annotated[
        int, typer.Option(min=0, help="Since which offset it is open, as find-hanging says.")
    ],
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Abort a transaction that hangs in a partition. Exit 1 if none is open there."""
    key = PartitionKey(topic, partition)
    with Transactions(bootstrap) as transactions:
        try:
            aborted = transactions.abort(key, open_since=start_offset)
        except RequestFailed as error:
            raise _worded(error, topic) from error
    if as_json:
        print_json({**_producer_as_json(aborted), "aborted": True})
    else:
        print_line(f"Aborted the transaction of producer {aborted.producer_id} in {key}.")
    return 0


def _worded(error: RequestFailed, topic: str) -> RequestFailed:
    # That one of its partitions is not there is said in words of its own.
    is_topic = error.is_unknown_topic and "Broker:" in str(error)
    return unknown_topic(topic, error) if is_topic else error


def _print_hanging(hanging: list[HangingTransaction]) -> None:
    print_table(
        ["TOPIC", "PARTITION", "PRODUCER ID", "EPOCH", "START OFFSET", "AGE"],
        [
            [
                each.producer.key.topic,
                each.producer.key.partition,
                each.producer.producer_id,
                each.producer.producer_epoch,
                each.producer.open_since,
                duration_text(each.age_ms / 1_000),
            ]
            for each in hanging
        ],
    )


def _as_json(described: TransactionDescription) -> dict[str, object]:
    return {
        "transactional_id": described.transactional_id,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "state": described.state,
        "timeout_ms": described.timeout_ms,
        "started_ms": described.started_ms,
        "coordinator": described.coordinator_id,
        "partitions": [[each.topic, each.partition] for each in described.partitions],
    }


def _producer_as_json(producer: PartitionProducer) -> dict[str, object]:
    return {
        "topic": producer.key.topic,
        "partition": producer.key.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp_ms": producer.last_timestamp_ms,
        "open_since": producer.open_since,
    }

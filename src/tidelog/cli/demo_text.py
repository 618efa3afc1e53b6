"""What `tidelog demo` says before each of its steps, and at the end."""

from typing import Final

STEPS: Final = (
    (
        "A cluster",
        "Three brokers, each a process of its own. `reliable`: three replicas of every topic, and "
        "nothing is acknowledged that fewer than two of them have.",
    ),
    ("A topic", "Three partitions; each broker leads one of them and follows the other two."),
    (
        "A producer",
        "It waits for all replicas in sync (acks=all), and writes down what it is told of every "
        "record: its ledger.",
    ),
    ("kill -9", "The broker that leads partition 0 dies in the middle of that, without a word."),
    (
        "The gap",
        "What the producer noticed: the time without an acknowledgement. It sent again what was "
        "not acknowledged, and the new leader knew what it had already.",
    ),
    ("The way back", "The broker starts again, takes what it has missed, and is in sync."),
    (
        "The verdict",
        "Spark compares all that is in the log with all that the producer was told. (It takes the "
        "longest: a JVM has to start.)",
    ),
)

WITHOUT_SPARK: Final = (
    "Spark is not installed, so this step is left out: pip install 'tidelog[pipeline]' brings it."
)

NEXT: Final = (
    ("{program} up", "a cluster to keep, on port 9092, for any Kafka client"),
    ("{program} lab run leader-killed", "the same again and again, and a verdict"),
    ("{program} lab faults --count 100", "a hundred faults of all kinds, and what was lost"),
    ("{program} bench 5 --quick", "what acks and min.insync.replicas mean when brokers die"),
    ("docs/pipeline.md", "Spark: read, write, archive, replay, verify"),
    ("docs/testing.md", "a real cluster in your own tests"),
)
"""Commands and pages, and what for."""

"""Requests about brokers for which librdkafka has no call.

DescribeLogDirs, AlterReplicaLogDirs, and the settings that are the default for all brokers
(librdkafka refuses a broker without a number). Everything else goes through `admin.py`. The
versions used are those that every broker since Kafka 3.3 speaks.

Importing this module imports kio, which takes longer than most commands take to run; `admin.py`
does it only when one of these requests is to be sent.
"""

from collections.abc import Mapping, Sequence

from kio.schema.alter_replica_log_dirs.v2.request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kio.schema.alter_replica_log_dirs.v2.response import AlterReplicaLogDirsResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse, DescribeLogDirsResult
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32

from tidelog.client.asking import ask, require_success
from tidelog.client.bootstrap import Address
from tidelog.client.values import CONFIG_SOURCES, ConfigValue, LogDirDescription, ReplicaOnDisk

_BROKER_RESOURCE = 4
_LOGGER_RESOURCE = 8
# Of one broker, and of all of them, by DescribeConfigs' numbers.
_DYNAMIC_SOURCES = frozenset({2, 3})
_ALL_BROKERS = ""
_SET = 0
_DELETE = 1


def describe_log_dirs(
    address: Address, broker_id: int, *, timeout_s: float
) -> tuple[LogDirDescription, ...]:
    """Every log dir of the broker at `address`, with all of its partitions."""
    request = DescribeLogDirsRequest(topics=None)
    answer = ask(address, request, DescribeLogDirsResponse, timeout_s=timeout_s)
    require_success(answer.error_code, None)
    return tuple(_log_dir(broker_id, result) for result in answer.results)


def alter_replica_log_dir(
    address: Address, topic: str, partition: int, *, log_dir: str, timeout_s: float
) -> None:
    """Have a replica of the broker at `address` lie in `log_dir`. Raises RequestFailed."""
    one = AlterReplicaLogDirTopic(name=TopicName(topic), partitions=(i32(partition),))
    request = AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=log_dir, topics=(one,)),))
    answer = ask(address, request, AlterReplicaLogDirsResponse, timeout_s=timeout_s)
    for result in answer.results:
        for answered in result.partitions:
            require_success(answered.error_code, None)


def describe_cluster_defaults(address: Address, *, timeout_s: float) -> tuple[ConfigValue, ...]:
    """The settings that were made the default of all brokers."""
    return _describe(address, _BROKER_RESOURCE, _ALL_BROKERS, timeout_s)


def describe_broker(
    address: Address, broker_id: int, *, timeout_s: float
) -> tuple[ConfigValue, ...]:
    """The settings of the broker at `address`."""
    return _describe(address, _BROKER_RESOURCE, str(broker_id), timeout_s)


def describe_loggers(
    address: Address, broker_id: int, *, timeout_s: float
) -> tuple[ConfigValue, ...]:
    """The levels of the loggers of the broker at `address`."""
    return _describe(address, _LOGGER_RESOURCE, str(broker_id), timeout_s)


def _describe(address: Address, kind: int, name: str, timeout_s: float) -> tuple[ConfigValue, ...]:
    resource = DescribeConfigsResource(
        resource_type=i8(kind), resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=(resource,), include_synonyms=True, include_documentation=False
    )
    (result,) = ask(address, request, DescribeConfigsResponse, timeout_s=timeout_s).results
    require_success(result.error_code, result.error_message)
    return tuple(_config_value(config) for config in result.configs)


def alter_cluster_defaults(
    address: Address, *, set_values: Mapping[str, str], deleted: Sequence[str], timeout_s: float
) -> None:
    """Change the settings that hold for every broker without one of its own."""
    _alter(address, _BROKER_RESOURCE, _ALL_BROKERS, set_values, deleted, timeout_s)


def alter_broker(
    address: Address,
    broker_id: int,
    *,
    set_values: Mapping[str, str],
    deleted: Sequence[str],
    timeout_s: float,
) -> None:
    """Change the settings of one broker, which need not run, by asking the one at `address`."""
    _alter(address, _BROKER_RESOURCE, str(broker_id), set_values, deleted, timeout_s)


def alter_loggers(
    address: Address,
    broker_id: int,
    *,
    set_values: Mapping[str, str],
    deleted: Sequence[str],
    timeout_s: float,
) -> None:
    """Change the levels of loggers of the broker at `address`."""
    _alter(address, _LOGGER_RESOURCE, str(broker_id), set_values, deleted, timeout_s)


def _alter(
    address: Address,
    kind: int,
    name: str,
    set_values: Mapping[str, str],
    deleted: Sequence[str],
    timeout_s: float,
) -> None:
    configs = [
        AlterableConfig(name=setting, config_operation=i8(_SET), value=value)
        for setting, value in set_values.items()
    ]
    configs += [
        AlterableConfig(name=setting, config_operation=i8(_DELETE), value=None)
        for setting in deleted
    ]
    resource = AlterConfigsResource(
        resource_type=i8(kind), resource_name=name, configs=tuple(configs)
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    answer = ask(address, request, IncrementalAlterConfigsResponse, timeout_s=timeout_s)
    for response in answer.responses:
        require_success(response.error_code, response.error_message)


def _log_dir(broker_id: int, result: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        broker_id=broker_id,
        path=result.log_dir,
        error=result.error_code.name.upper() if result.error_code.value != 0 else None,
        total_bytes=result.total_bytes if result.total_bytes >= 0 else None,
        usable_bytes=result.usable_bytes if result.usable_bytes >= 0 else None,
        replicas=tuple(
            ReplicaOnDisk(
                topic=topic.name,
                partition=partition.partition_index,
                size_bytes=partition.partition_size,
                offset_lag=partition.offset_lag,
                is_future=partition.is_future_key,
            )
            for topic in result.topics
            for partition in topic.partitions
        ),
    )


def _config_value(config: DescribeConfigsResourceResult) -> ConfigValue:
    return ConfigValue(
        name=config.name,
        value=config.value,
        source=CONFIG_SOURCES.get(config.config_source, "unknown"),
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        not_in_force=_not_in_force(config),
    )


def _not_in_force(config: DescribeConfigsResourceResult) -> str | None:
    """The first synonym says what is set, the value what counts."""
    if not config.synonyms or config.config_source not in _DYNAMIC_SOURCES:
        return None
    first = config.synonyms[0]
    return None if first.name != config.name or first.value == config.value else first.value

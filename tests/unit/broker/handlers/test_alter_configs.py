"""AlterConfigs and IncrementalAlterConfigs: settings of topics and brokers, changed (P1, G5)."""

from collections.abc import Mapping, Sequence

import kio.schema.alter_configs.v2.request as alter
import kio.schema.incremental_alter_configs.v1.request as incremental
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from tests.unit.broker.handlers.controlled import with_controller
from tests.unit.broker.handlers.samples import context
from tidelog.base.ids import BrokerId
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.handlers.alter_configs import AlterConfigsHandler
from tidelog.broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from tidelog.broker.loggers import Loggers
from tidelog.core.controller.requests import NewTopic
from tidelog.telemetry.levels import levels

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
SESSION_TIMEOUT = "consumer.session.timeout.ms"
SET, DELETE, APPEND, SUBTRACT = range(4)
ME = BrokerId(1)

Answer = list[tuple[int, str, ErrorCode]]


async def make_topic(controller: ControllerRunner) -> None:
    topic = NewTopic(name="t", configs=(("retention.ms", "1000"), ("flush.ms", "9")))
    await AdminRequests(controller).create_topics([topic], validate_only=False)


async def replace(
    controller: ControllerRunner,
    *resources: tuple[int, str, Mapping[str, str | None]],
    validate_only: bool = False,
) -> Answer:
    request = alter.AlterConfigsRequest(
        resources=tuple(
            alter.AlterConfigsResource(
                resource_type=i8(kind),
                resource_name=name,
                configs=tuple(
                    alter.AlterableConfig(name=key, value=value) for key, value in configs.items()
                ),
            )
            for kind, name, configs in resources
        ),
        validate_only=validate_only,
    )
    response = await AlterConfigsHandler(controller=AdminRequests(controller)).handle(
        request, context()
    )
    return [(one.resource_type, one.resource_name, one.error_code) for one in response.responses]


async def change(
    controller: ControllerRunner,
    *resources: tuple[int, str, Sequence[tuple[str, int, str | None]]],
    validate_only: bool = False,
) -> Answer:
    request = incremental.IncrementalAlterConfigsRequest(
        resources=tuple(
            incremental.AlterConfigsResource(
                resource_type=i8(kind),
                resource_name=name,
                configs=tuple(
                    incremental.AlterableConfig(
                        name=key, config_operation=i8(operation), value=value
                    )
                    for key, operation, value in alterations
                ),
            )
            for kind, name, alterations in resources
        ),
        validate_only=validate_only,
    )
    handler = IncrementalAlterConfigsHandler(
        controller=AdminRequests(controller), loggers=Loggers(BrokerId(1)), forwarding=None
    )
    response = await handler.handle(request, context())
    return [(one.resource_type, one.resource_name, one.error_code) for one in response.responses]


def test_replacing_resets_what_is_not_named() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make_topic(controller)
        answer = await replace(controller, (TOPIC, "t", {"retention.ms": "5"}))
        assert answer == [(TOPIC, "t", ErrorCode.none)]
        assert controller.image.topic_config("t") == {"retention.ms": "5"}

    with_controller(scenario)


def test_a_change_leaves_what_is_not_named() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make_topic(controller)
        answer = await change(controller, (TOPIC, "t", [("retention.ms", SET, "5")]))
        assert answer == [(TOPIC, "t", ErrorCode.none)]
        assert controller.image.topic_config("t") == {"retention.ms": "5", "flush.ms": "9"}

    with_controller(scenario)


def test_single_settings_are_deleted_appended_to_and_subtracted_from() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make_topic(controller)
        await change(
            controller,
            (TOPIC, "t", [("flush.ms", DELETE, None), ("cleanup.policy", APPEND, "compact")]),
        )
        settings = {"retention.ms": "1000", "cleanup.policy": "delete,compact"}
        assert controller.image.topic_config("t") == settings
        await change(controller, (TOPIC, "t", [("cleanup.policy", SUBTRACT, "delete")]))
        assert controller.image.topic_config("t")["cleanup.policy"] == "compact"

    with_controller(scenario)


def test_the_alterations_of_a_resource_happen_together_or_not_at_all() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make_topic(controller)
        answer = await change(
            controller, (TOPIC, "t", [("retention.ms", SET, "5"), ("flush.ms", SET, "x")])
        )
        assert answer == [(TOPIC, "t", ErrorCode.invalid_config)]
        assert controller.image.topic_config("t")["retention.ms"] == "1000"

    with_controller(scenario)


def test_a_refusal_stays_inside_its_resource() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make_topic(controller)
        wrong = [("retention.ms", SET, "5")]
        assert await change(
            controller,
            (TOPIC, "gone", wrong),
            (BROKER, "1", wrong),
            (BROKER, "abc", wrong),
            (GROUP, "g", wrong),
            (GROUP, "", [(SESSION_TIMEOUT, SET, "50000")]),
            (GROUP, "g" * 1_001, [(SESSION_TIMEOUT, SET, "50000")]),
            (BROKER_LOGGER, "2", wrong),
            (99, "x", wrong),
            (TOPIC, "t", wrong),
        ) == [
            (TOPIC, "gone", ErrorCode.unknown_topic_or_partition),
            (BROKER, "1", ErrorCode.invalid_request),
            (BROKER, "abc", ErrorCode.invalid_request),
            (GROUP, "g", ErrorCode.invalid_config),
            (GROUP, "", ErrorCode.invalid_request),
            (GROUP, "g" * 1_001, ErrorCode.invalid_request),
            (BROKER_LOGGER, "2", ErrorCode.invalid_request),
            (99, "x", ErrorCode.invalid_request),
            (TOPIC, "t", ErrorCode.none),
        ]

    with_controller(scenario)


def test_loggers_that_are_in_a_request_twice_are_refused_and_answered_once() -> None:
    """As every other resource is: an answer, and the time that it takes, must not grow."""

    async def scenario(controller: ControllerRunner) -> None:
        steps: list[tuple[str, int, str | None]] = [("tidelog.broker", SET, "WARN")]
        twice = [(BROKER_LOGGER, "1", steps)] * 2
        before = levels()
        assert await change(controller, *twice) == [(BROKER_LOGGER, "1", ErrorCode.invalid_request)]
        assert levels() == before

    with_controller(scenario)


def test_settings_of_a_group_are_changed_and_taken_back() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        async def set_to(*steps: tuple[str, int, str | None]) -> None:
            answer = await change(controller, (GROUP, "g", list(steps)))
            assert answer == [(GROUP, "g", ErrorCode.none)]

        await set_to((SESSION_TIMEOUT, SET, "50000"))
        assert controller.image.group_config("g") == {SESSION_TIMEOUT: "50000"}
        await set_to((SESSION_TIMEOUT, DELETE, None))
        assert controller.image.group_configs == {}

    with_controller(scenario)


def test_settings_of_a_broker_and_of_all_brokers_are_apart() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        answer = await change(
            controller,
            (BROKER, "", [("log.retention.ms", SET, "5000")]),
            (BROKER, "1", [("log.retention.ms", SET, "6000")]),
        )
        assert [code for _kind, _name, code in answer] == [ErrorCode.none] * 2
        assert controller.image.broker_config(None) == {"log.retention.ms": "5000"}
        assert controller.image.broker_config(ME) == {"log.retention.ms": "6000"}
        await replace(controller, (BROKER, "1", {}))
        assert controller.image.broker_config(ME) == {}

    with_controller(scenario)


def test_validating_changes_nothing() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make_topic(controller)
        before = controller.image.topic_config("t")
        await replace(controller, (TOPIC, "t", {}), validate_only=True)
        await change(controller, (TOPIC, "t", [("retention.ms", DELETE, None)]), validate_only=True)
        assert controller.image.topic_config("t") == before

    with_controller(scenario)


def test_a_value_is_required() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make_topic(controller)
        assert await replace(controller, (TOPIC, "t", {"retention.ms": None})) == [
            (TOPIC, "t", ErrorCode.invalid_request)
        ]

    with_controller(scenario)

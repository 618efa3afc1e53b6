"""The levels of a broker's loggers, as administrators see and change them (KIP-412).

They are settings of a resource BROKER_LOGGER, whose name is the broker's id. Only the broker itself
knows them, so requests about them are not passed on to the controller; they are in memory, and
begin anew with the process. Refusals have Kafka's codes.
"""

import re
from collections.abc import Sequence
from typing import Final

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId
from tidelog.config.describe import ConfigSource, DescribedConfig
from tidelog.config.dynamic import AlterOperation
from tidelog.config.option import ConfigType
from tidelog.core.controller.requests import ConfigAlteration, ConfigOutcome, ConfigResource
from tidelog.telemetry.levels import LEVELS, ROOT, levels, set_level

BROKER_LOGGER: Final = 8

_BROKER_ID = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


class Loggers:
    """Those of this process."""

    def __init__(self, broker_id: BrokerId) -> None:
        self._broker_id = broker_id

    def describe(self, name: str, names: Sequence[str] | None) -> list[DescribedConfig]:
        """Raises RequestRefused if `name` is not this broker."""
        self._require_own(name)
        wanted = None if names is None else frozenset(names)
        return [
            DescribedConfig(
                name=logger,
                value=level,
                source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
                is_read_only=False,
                is_sensitive=False,
                type=ConfigType.UNKNOWN,
                documentation="",
                synonyms=(),
            )
            for logger, level in levels().items()
            if wanted is None or logger in wanted
        ]

    def alter(
        self,
        resource: ConfigResource,
        alterations: Sequence[ConfigAlteration],
        *,
        validate_only: bool,
    ) -> ConfigOutcome:
        """Change levels, all that are named or none."""
        try:
            self._require_own(resource.name)
            known, seen = levels(), set[str]()
            for step in alterations:
                _require_possible(step, known)
                if step.name in seen:
                    raise RequestRefused(ErrorCode.INVALID_REQUEST, f"{step.name} is altered twice")
                seen.add(step.name)
        except RequestRefused as refusal:
            return ConfigOutcome(resource=resource, error=refusal.code, message=refusal.message)
        if not validate_only:
            for step in alterations:
                set_level(step.name, step.value if step.operation == AlterOperation.SET else None)
        return ConfigOutcome(resource=resource)

    def _require_own(self, name: str) -> None:
        if _BROKER_ID.fullmatch(name) is None or int(name) != self._broker_id:
            raise RequestRefused(
                ErrorCode.INVALID_REQUEST,
                f"loggers of '{name}' are not here: this is broker {self._broker_id}",
            )


def _require_possible(step: ConfigAlteration, known: dict[str, str]) -> None:
    if step.operation not in {AlterOperation.SET, AlterOperation.DELETE}:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"{step.name}: a level can be set or deleted"
        )
    if step.operation == AlterOperation.SET and step.value is None:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"{step.name} is null but must have a value"
        )
    if step.name not in known:
        raise RequestRefused(ErrorCode.INVALID_CONFIG, f"there is no logger {step.name}")
    if step.operation == AlterOperation.DELETE and step.name == ROOT:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "root must have a level")
    if step.operation == AlterOperation.SET and step.value not in LEVELS:
        raise RequestRefused(
            ErrorCode.INVALID_CONFIG,
            f"{step.name} is '{step.value}' but must be one of {', '.join(LEVELS)}",
        )

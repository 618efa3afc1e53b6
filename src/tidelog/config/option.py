"""Settings as data: Kafka's name, type, bounds and default next to the field that holds the value.

A config class is a frozen dataclass whose fields are made by `option()`. The field's `Setting`
says how text becomes a value, which values are refused, how the value is shown again, and whether
it may change while the broker runs; reading a properties file, answering DescribeConfigs and
checking an AlterConfigs request all use the same `Setting`, so they cannot disagree.

Values given as text pass `Setting.parse`, which raises ConfigError with one sentence naming the
setting and the value. Values given to a constructor are the caller's own and are not checked
against bounds: only text comes from outside.

This is the one place where `Any` appears: a field's type is known to its config class, not here.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cache
from typing import Any, TypeVar

from tidelog.base.errors import ConfigError

T = TypeVar("T")
C = TypeVar("C")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = sys.float_info.max


class ConfigType(IntEnum):
    """Types of settings, with the numbers DescribeConfigs uses for them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DOUBLE = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Everything known about one setting but its value.

    `also` are values outside the bounds that are allowed nevertheless (Kafka's -1 for "the
    codec's own level"). `choices` are compared without regard to case where `is_any_case`.
    `pattern` must match the whole text where it is given. A dynamic setting may change while the
    broker runs.
    """

    name: str
    field_name: str
    type: ConfigType
    default: Any
    documentation: str
    minimum: float | None
    maximum: float | None
    also: tuple[int, ...]
    choices: tuple[str, ...]
    is_any_case: bool
    pattern: str | None
    is_dynamic: bool

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def is_optional_text(self) -> bool:
        """Whether an empty value, as properties files like to have them, means none at all."""
        return self.default is None and self.type in {ConfigType.STRING, ConfigType.LIST}

    def parse(self, text: str) -> Any:
        """The value that `text` stands for, or ConfigError if it stands for none."""
        if not text.strip() and self.is_optional_text:
            return None
        value = self._convert(text.strip())
        self._require_valid(value, text)
        return value

    def render(self, value: Any) -> str | None:
        """The text that `parse` would turn into `value`; None where there is no value."""
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case tuple():
                return ",".join(value)
            case float():
                return str(value).replace("e+", "E").replace("e", "E")  # As Java writes it.
            case _:
                return str(value)

    def _convert(self, text: str) -> Any:
        match self.type:
            case ConfigType.BOOLEAN:
                return self._boolean(text)
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                return self._integer(text)
            case ConfigType.DOUBLE:
                return self._double(text)
            case ConfigType.LIST:
                return tuple(dict.fromkeys(re.split(r"\s*,\s*", text))) if text else ()
            case _:
                return text

    def _boolean(self, text: str) -> bool:
        lowered = text.lower()
        if lowered not in {"true", "false"}:
            raise self._refused(text, "must be true or false")
        return lowered == "true"

    def _integer(self, text: str) -> int:
        # int() alone would also take "1_000" and digits of other scripts, which Kafka does not.
        if _INTEGER.fullmatch(text) is None:
            raise self._refused(text, "must be a whole number")
        value = int(text) if len(text) <= 20 else 2**64
        limit = 2 ** (_INTEGER_BITS[self.type] - 1)
        if not -limit <= value < limit:
            raise self._refused(text, f"must be between {-limit} and {limit - 1}")
        return value

    def _double(self, text: str) -> float:
        if _DOUBLE.fullmatch(text) is None:
            raise self._refused(text, "must be a number")
        return float(text)

    def _require_valid(self, value: Any, text: str) -> None:
        if self.choices:
            self._require_choice(value, text)
        if self.pattern is not None and re.fullmatch(self.pattern, text.strip()) is None:
            raise self._refused(text, f"must match {self.pattern}")
        if value in self.also:
            return
        if self.minimum is not None and value < self.minimum:
            raise self._refused(text, f"must be at least {self.minimum}{self._exception()}")
        if self.maximum is not None and value > self.maximum:
            raise self._refused(text, f"must be at most {self.maximum}{self._exception()}")

    def _require_choice(self, value: Any, text: str) -> None:
        chosen = value if isinstance(value, tuple) else (value,)
        if self.is_any_case:
            chosen = tuple(one.lower() for one in chosen)
        if not set(chosen) <= set(self.choices):
            raise self._refused(text, f"must be one of {', '.join(self.choices)}")

    def _exception(self) -> str:
        return "".join(f", or {value}" for value in self.also)

    def _refused(self, text: str, reason: str) -> ConfigError:
        shown = "[hidden]" if self.is_sensitive else text.strip()
        return ConfigError(f"{self.name} is '{shown}' but {reason}")


def option(
    name: str,
    default: T,
    kind: ConfigType,
    documentation: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    also: tuple[int, ...] = (),
    choices: tuple[str, ...] = (),
    any_case: bool = False,
    pattern: str | None = None,
    dynamic: bool = False,
) -> T:
    """A dataclass field that is read from Kafka's `name` in a properties file."""
    setting = Setting(
        name=name,
        field_name=name.replace(".", "_"),
        type=kind,
        default=default,
        documentation=documentation,
        minimum=minimum,
        maximum=maximum,
        also=also,
        choices=choices,
        is_any_case=any_case,
        pattern=pattern,
        is_dynamic=dynamic,
    )
    made: Any = field(default=default, metadata={"setting": setting})
    return made  # type: ignore[no-any-return]


@cache
def settings_of(config_class: type) -> Mapping[str, Setting]:
    """The settings of a config class by Kafka's name, in the order of its fields."""
    return {setting.name: setting for setting in _declared(config_class)}


def _declared(config_class: type) -> Iterator[Setting]:
    for declared in fields(config_class):
        setting = declared.metadata.get("setting")
        if setting is not None:
            assert setting.field_name == declared.name.removeprefix("_")
            yield setting


def load(config_class: type[C], properties: Mapping[str, str]) -> C:
    """Build `config_class` from those of `properties` that it knows; it skips others."""
    return config_class(**_values(config_class, properties))


def build(config_class: type[C], values: Mapping[str, object]) -> C:
    """Build `config_class` from values that are right already, by field name."""
    return config_class(**values)


def override(config: C, properties: Mapping[str, str]) -> C:
    """`config` with those of `properties` that it knows in place of its own values."""
    return replace(config, **_values(type(config), properties))  # type: ignore[type-var]


def _values(config_class: type, properties: Mapping[str, str]) -> dict[str, Any]:
    return {
        setting.field_name: setting.parse(properties[name])
        for name, setting in settings_of(config_class).items()
        if name in properties
    }

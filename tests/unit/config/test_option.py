"""Text becomes a value by Kafka's rules, or one sentence that names the setting and the value."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import ConfigError
from tidelog.config.option import LONG_MAX, ConfigType, Setting, load, option, override, settings_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleConfig:
    some_int: int = option("some.int", 5, ConfigType.INT, "", minimum=1, maximum=10, also=(-1,))
    some_short: int = option("some.short", 1, ConfigType.SHORT, "")
    some_long: int = option("some.long", 0, ConfigType.LONG, "")
    some_double: float = option("some.double", 0.5, ConfigType.DOUBLE, "", minimum=0, maximum=1)
    some_flag: bool = option("some.flag", False, ConfigType.BOOLEAN, "", dynamic=True)
    some_list: tuple[str, ...] = option(
        "some.list", ("a",), ConfigType.LIST, "", choices=("a", "b")
    )
    some_name: str | None = option("some.name", None, ConfigType.STRING, "", pattern="[a-z]+")
    some_secret: str = option("some.secret", "", ConfigType.PASSWORD, "", choices=("", "swordfish"))


def setting(name: str) -> Setting:
    return settings_of(ExampleConfig)[name]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("some.int", "7", 7),
        ("some.int", " +7\t", 7),
        ("some.int", "-1", -1),
        ("some.short", "-32768", -32_768),
        ("some.long", "9223372036854775807", LONG_MAX),
        ("some.double", "1e-1", 0.1),
        ("some.double", ".5", 0.5),
        ("some.flag", "TRUE", True),
        ("some.flag", "false", False),
        ("some.list", "", ()),
        ("some.list", "b , a", ("b", "a")),
        ("some.list", "b,b", ("b",)),
        ("some.name", "abc", "abc"),
        ("some.name", "  ", None),
    ],
)
def test_text_is_read_as_kafka_reads_it(name: str, text: str, value: object) -> None:
    assert setting(name).parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("some.int", "0", "some.int is '0' but must be at least 1, or -1"),
        ("some.int", "11", "some.int is '11' but must be at most 10, or -1"),
        ("some.int", "1_0", "some.int is '1_0' but must be a whole number"),
        ("some.int", "٣", "some.int is '٣' but must be a whole number"),
        ("some.int", "", "some.int is '' but must be a whole number"),
        ("some.int", "2147483648", "must be between -2147483648 and 2147483647"),
        ("some.short", "32768", "must be between -32768 and 32767"),
        ("some.long", "9" * 5000, "must be between -9223372036854775808"),
        ("some.double", "nan", "some.double is 'nan' but must be a number"),
        ("some.double", "1.5", "some.double is '1.5' but must be at most 1"),
        ("some.flag", "yes", "some.flag is 'yes' but must be true or false"),
        ("some.list", "a,c", "some.list is 'a,c' but must be one of a, b"),
        ("some.list", "a,", "some.list is 'a,' but must be one of a, b"),
        ("some.name", "A", "some.name is 'A' but must match [a-z]+"),
    ],
)
def test_a_wrong_value_is_one_sentence_with_setting_and_value(
    name: str, text: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        setting(name).parse(text)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_refused_secret_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        setting("some.secret").parse("hunter2")
    assert "hunter2" not in str(refused.value)


@given(
    st.builds(
        ExampleConfig,
        some_int=st.integers(1, 10),
        some_short=st.integers(-(2**15), 2**15 - 1),
        some_long=st.integers(-(2**63), 2**63 - 1),
        some_double=st.floats(0, 1),
        some_flag=st.booleans(),
        some_list=st.sampled_from([(), ("a",), ("b", "a")]),
        some_name=st.sampled_from(["x", None]),
    )
)
def test_a_rendered_value_parses_to_itself(config: ExampleConfig) -> None:
    for each in settings_of(ExampleConfig).values():
        value = getattr(config, each.field_name)
        assert each.parse(each.render(value) or "") == value


def test_load_takes_its_own_settings_only() -> None:
    assert load(ExampleConfig, {"some.int": "3", "other": "x"}) == ExampleConfig(some_int=3)


def test_override_leaves_other_values_alone() -> None:
    config = ExampleConfig(some_int=3, some_flag=True)
    assert override(config, {"some.flag": "false"}) == ExampleConfig(some_int=3)


def test_settings_know_whether_they_may_change() -> None:
    assert setting("some.flag").is_dynamic
    assert not setting("some.int").is_dynamic

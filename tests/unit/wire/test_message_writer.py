"""G1: what is written here is what kio writes, in every version, only faster."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32Timedelta

from tests.support.kio_codec import PER_VERSION, encode, kio_versions, messages, milliseconds
from tidelog.wire.message_writer import write_message


@pytest.mark.parametrize("key", sorted(api_key_map), ids=lambda key: api_key_map[key])
@PER_VERSION
@given(data=st.data())
def test_messages_are_written_as_the_library_writes_them(key: int, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(kio_versions(key)))
    for message_class in (load_request_schema(key, version), load_response_schema(key, version)):
        message = data.draw(messages(message_class))
        assert write_message(message, message_class) == encode(message)


def _answer(*configs: tuple[CreatableTopicConfigs, ...]) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        throttle_time=i32Timedelta.parse(milliseconds(0)),
        topics=tuple(
            CreatableTopicResult(
                name=TopicName(f"t{number}"),
                topic_id=None,
                error_code=ErrorCode.none,
                error_message=None,
                configs=shared,
            )
            for number, shared in enumerate(configs)
        ),
    )


def _config(value: str) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name="retention.ms",
        value=value,
        read_only=False,
        config_source=i8(1),
        is_sensitive=False,
    )


def test_an_array_that_several_parts_share_is_written_in_each() -> None:
    one, other = (_config("1"),), (_config("2"), _config("3"))
    message = _answer(one, other, one, (), one)
    assert write_message(message, CreateTopicsResponse) == encode(message)


def test_an_array_that_several_parts_share_is_written_once() -> None:
    class Counted(str):
        """A value that knows how often it was written."""

        __slots__ = ()
        times = 0

        def encode(self, *arguments: object, **options: object) -> bytes:
            Counted.times += 1
            return b"1"

    shared = (_config(Counted("1")),)
    write_message(_answer(shared, shared, shared), CreateTopicsResponse)
    assert Counted.times == 1


def test_a_tagged_field_that_has_its_default_is_left_out() -> None:
    message = _answer(())
    tagged = dataclasses.replace(
        message, topics=(dataclasses.replace(message.topics[0], topic_config_error_code=i16(7)),)
    )
    plain = write_message(message, CreateTopicsResponse)
    assert len(write_message(tagged, CreateTopicsResponse)) > len(plain)
    assert write_message(tagged, CreateTopicsResponse) == encode(tagged)

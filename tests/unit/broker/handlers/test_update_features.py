"""UpdateFeatures: levels that are in force may be asked for, others may not (P1)."""

import asyncio

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.update_features.v1.response import UpdateFeaturesResponse as ResponseOfEach
from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest
from kio.schema.update_features.v2.response import UpdateFeaturesResponse
from kio.static.primitive import i16

from tests.unit.broker.handlers.samples import context
from tidelog.broker.handlers.update_features import UpdateFeaturesHandler


def update(
    *levels: tuple[str, int], api_version: int = 2
) -> UpdateFeaturesResponse | ResponseOfEach:
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=i16(level)) for name, level in levels
    ]
    request = UpdateFeaturesRequest(feature_updates=tuple(updates))
    return asyncio.run(UpdateFeaturesHandler().handle(request, context(api_version=api_version)))


def test_the_level_that_is_in_force_is_granted() -> None:
    answer = update(("transaction.version", 2), ("group.version", 1))
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)


@pytest.mark.parametrize(
    ("feature", "level", "word"),
    [
        ("transaction.version", 3, "Only versions 0-2 are supported"),
        ("transaction.version", 1, "transaction.version is 2, which does not change"),
        ("share.version", 1, "share.version. It is not supported"),
    ],
)
def test_any_other_level_is_refused_with_its_name(feature: str, level: int, word: str) -> None:
    answer = update(("group.version", 1), (feature, level))
    assert answer.error_code is ErrorCode.invalid_update_version
    assert answer.error_message is not None
    assert word in answer.error_message


def test_before_version_2_each_feature_has_an_answer() -> None:
    answer = update(("transaction.version", 2), ("x", 1), api_version=1)
    assert isinstance(answer, ResponseOfEach)
    assert answer.error_code is ErrorCode.none
    assert [(one.feature, one.error_code) for one in answer.results] == [
        ("transaction.version", ErrorCode.none),
        ("x", ErrorCode.invalid_update_version),
    ]

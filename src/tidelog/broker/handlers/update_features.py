"""UpdateFeatures (57): the levels of a cluster's features, which do not change while it runs.

Every broker of a version of tidelog has the same levels. To ask for the level that is in force is
fine, as it is with Kafka; to ask for another one is refused with INVALID_UPDATE_VERSION. From
version 2 on one refusal is the answer to the whole request; before, each feature has its own.
"""

from dataclasses import dataclass
from typing import Final

from kio.schema.update_features.v1.response import UpdatableFeatureResult
from kio.schema.update_features.v1.response import UpdateFeaturesResponse as ResponseOfEach
from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest
from kio.schema.update_features.v2.response import UpdateFeaturesResponse

from tidelog.base.errors import ErrorCode
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.handlers.api_versions import FINALIZED_FEATURES, SUPPORTED_FEATURES

_FIRST_WITH_ONE_ANSWER: Final = 2
_SUPPORTED: Final = {feature.name: feature for feature in SUPPORTED_FEATURES}
_LEVELS: Final = {feature.name: feature.highest for feature in FINALIZED_FEATURES}


@dataclass(frozen=True, slots=True)
class UpdateFeaturesHandler:
    """Knows the levels; depends on nothing."""

    async def handle(
        self, request: UpdateFeaturesRequest, context: RequestContext
    ) -> UpdateFeaturesResponse | ResponseOfEach:
        refusals = {update.feature: _refusal(update) for update in request.feature_updates}
        if context.api_version < _FIRST_WITH_ONE_ANSWER:
            return _answer_to_each(refusals)
        first = next((refusal for refusal in refusals.values() if refusal is not None), None)
        if first is None:
            return _answer(ErrorCode.NONE, None)
        return _answer(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"The update failed for all features since the following feature had an error: {first}",
        )


def _refusal(update: FeatureUpdateKey) -> str | None:
    """Why the level cannot be had; None if it is there already."""
    name, level = update.feature, update.max_version_level
    supported = _SUPPORTED.get(name)
    if supported is None:
        return f"Invalid update version {level} for feature {name}. It is not supported here."
    if not supported.lowest <= level <= supported.highest:
        return (
            f"Invalid update version {level} for feature {name}. "
            f"Only versions {supported.lowest}-{supported.highest} are supported."
        )
    if level != _LEVELS[name]:
        return f"{name} is {_LEVELS[name]}, which does not change while a cluster runs."
    return None


def _answer(code: ErrorCode, message: str | None) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        throttle_time=NO_THROTTLE, error_code=message_error(code), error_message=message
    )


def _answer_to_each(refusals: dict[str, str | None]) -> ResponseOfEach:
    return ResponseOfEach(
        throttle_time=NO_THROTTLE,
        error_code=message_error(ErrorCode.NONE),
        error_message=None,
        results=tuple(
            UpdatableFeatureResult(
                feature=name,
                error_code=message_error(
                    ErrorCode.NONE if refusal is None else ErrorCode.INVALID_UPDATE_VERSION
                ),
                error_message=refusal,
            )
            for name, refusal in refusals.items()
        ),
    )

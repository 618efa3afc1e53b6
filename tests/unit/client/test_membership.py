"""What one broker says about the others."""

import pytest

from tidelog.base.errors import WireError
from tidelog.client.membership import Membership, decode_membership
from tidelog.wire.metadata import (
    NO_OPERATIONS,
    MetadataBroker,
    MetadataResponse,
    encode_metadata_response,
)


def answer(broker_ids: list[int], controller_id: int) -> memoryview:
    brokers = [MetadataBroker(each, f"host-{each}", 9092, None) for each in broker_ids]
    response = MetadataResponse(0, brokers, "cluster", controller_id, [], NO_OPERATIONS, 0)
    return memoryview(encode_metadata_response(1, 1, response))[4:]


@pytest.mark.parametrize(
    ("controller_id", "known"),
    # One that has died is the controller until there is another; nobody can be asked through it.
    [(2, 2), (-1, None), (3, None)],
)
def test_brokers_and_their_controller_are_read(controller_id: int, known: int | None) -> None:
    assert decode_membership(answer([1, 2], controller_id)) == Membership(frozenset({1, 2}), known)


def test_answer_that_is_cut_off_is_refused() -> None:
    whole = answer([1, 2], 1)
    with pytest.raises(WireError):
        decode_membership(whole[: len(whole) // 2])

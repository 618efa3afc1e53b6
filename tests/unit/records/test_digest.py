"""D5: what a batch of the log says about ids, and about the transactions that they are in."""

from collections.abc import Iterator

import pytest

from tests.unit.storage.log_folder import NOW_MS
from tests.unit.storage.test_digests import BY_KEY, keyed
from tidelog.records.batch import HEADER_SIZE_BYTES, Codec, iter_headers
from tidelog.records.control import ControlType, TransactionEnd, encode_transaction_end
from tidelog.records.digest import BatchDigest, BatchKind, digest_of
from tidelog.records.ids import ENTRY, fingerprint
from tidelog.records.record import Record, encode_batch
from tidelog.records.retained import empty_batch


def control_batch(offset: int, key: bytes, value: bytes) -> bytearray:
    return keyed(
        offset, producer=7, is_control=True, records=[Record(offset, NOW_MS, key, value, ())]
    )


def digests_in(*batches: bytearray) -> Iterator[BatchDigest]:
    data = b"".join(batches)
    for position, header in iter_headers(data):
        yield digest_of(header, data[position : position + header.size_bytes], BY_KEY)


@pytest.mark.parametrize(
    ("control_type", "kind"),
    [(ControlType.COMMIT, BatchKind.COMMIT), (ControlType.ABORT, BatchKind.ABORT)],
)
def test_digest_says_how_a_transaction_ended(control_type: ControlType, kind: BatchKind) -> None:
    key, value = encode_transaction_end(TransactionEnd(control_type, 0))
    control = control_batch(5, key, value)
    unknown = keyed(
        6, producer=7, is_control=True, records=[Record(6, NOW_MS, b"\0\0\0\x09", b"", ())]
    )
    first, second, third = digests_in(keyed(4, "a", producer=7), control, unknown)
    assert (first.kind, first.producer_id) == (BatchKind.TRANSACTIONAL, 7)
    assert (second.kind, second.producer_id, second.entries) == (kind, 7, b"")
    assert (third.kind, third.producer_id) == (BatchKind.OTHER, -1)


def test_digest_of_an_idempotent_batch_names_no_producer() -> None:
    plain = encode_batch(
        [Record(0, NOW_MS, b"a", None, ())],
        leader_epoch=3,
        codec=Codec.LZ4,
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=False,
        is_control=False,
    )
    (digest,) = digests_in(plain)
    assert (digest.kind, digest.producer_id, digest.leader_epoch) == (BatchKind.PLAIN, -1, 3)
    assert digest.entries == ENTRY.pack(fingerprint(b"a"), 0)


def test_marker_that_compaction_took_out_ends_nothing() -> None:
    key, value = encode_transaction_end(TransactionEnd(ControlType.COMMIT, 0))
    (_, header), *_rest = iter_headers(control_batch(5, key, value))
    empty = empty_batch(header)
    (digest,) = digests_in(empty)
    assert (len(empty), digest.kind) == (HEADER_SIZE_BYTES, BatchKind.OTHER)

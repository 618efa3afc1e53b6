"""S8: all codecs in and out, in the containers that other clients read, within bounds."""

import gzip
import random
import struct
import tracemalloc

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.support.batches import payload_of
from tests.support.golden import kafka_batches
from tidelog.base.errors import CorruptBatch
from tidelog.records.batch import Codec
from tidelog.records.compression import compress, decompress

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
MAX_BYTES = 1_000_000
INCOMPRESSIBLE = random.Random(1).randbytes(200_000)
COMPRESSIBLE = b" ".join(b"%d" % (number * number) for number in range(20_000))


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=2_000), repeat=st.integers(1, 60))
def test_what_was_compressed_comes_back(codec: Codec, data: bytes, repeat: int) -> None:
    plain = data * repeat
    packed = compress(codec, plain, level=None)
    assert bytes(decompress(codec, packed, max_bytes=MAX_BYTES)) == plain


@pytest.mark.parametrize("codec", list(Codec))
def test_megabytes_come_back_from_kilobytes(codec: Codec) -> None:
    plain = COMPRESSIBLE + bytes(10_000_000)
    packed = compress(codec, plain, level=None)
    assert bytes(decompress(codec, packed, max_bytes=len(plain))) == plain


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_is_taken(codec: Codec, kind: type) -> None:
    packed = compress(codec, kind(INCOMPRESSIBLE), level=None)
    assert bytes(decompress(codec, kind(packed), max_bytes=MAX_BYTES)) == INCOMPRESSIBLE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_higher_level_is_still_read_back(codec: Codec) -> None:
    plain = INCOMPRESSIBLE + bytes(100_000)
    packed = compress(codec, plain, level=9)
    assert len(packed) < len(plain)
    assert bytes(decompress(codec, packed, max_bytes=MAX_BYTES)) == plain


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        *((Codec.GZIP, level) for level in (-1, 1, 9)),
        *((Codec.LZ4, level) for level in (1, 9, 17)),
        *((Codec.ZSTD, level) for level in (-131_072, -1, 0, 3, 22)),
    ],
)
def test_every_level_that_can_be_set_is_taken(codec: Codec, level: int) -> None:
    """S5: the ends of `compression.*.level` and their defaults."""
    packed = compress(codec, INCOMPRESSIBLE, level=level)
    assert bytes(decompress(codec, packed, max_bytes=MAX_BYTES)) == INCOMPRESSIBLE


def test_gzip_is_what_the_standard_library_reads() -> None:
    assert gzip.decompress(compress(Codec.GZIP, INCOMPRESSIBLE, level=None)) == INCOMPRESSIBLE


def test_gzip_of_several_members_is_read_as_one() -> None:
    packed = gzip.compress(b"first ") + gzip.compress(b"second")
    assert bytes(decompress(Codec.GZIP, packed, max_bytes=MAX_BYTES)) == b"first second"


def test_zstd_is_what_another_library_reads() -> None:
    packed = compress(Codec.ZSTD, INCOMPRESSIBLE, level=None)
    assert zstandard.ZstdDecompressor().stream_reader(packed).read() == INCOMPRESSIBLE


def test_zstd_without_a_stated_size_is_read() -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    packed = compressor.compress(INCOMPRESSIBLE) + compressor.flush()
    assert bytes(decompress(Codec.ZSTD, packed, max_bytes=MAX_BYTES)) == INCOMPRESSIBLE


def test_lz4_is_fast_unless_another_level_is_asked_for() -> None:
    """S5: 9 is Kafka's default, and for that it takes the compressor that lz4 calls 0."""
    fast = compress(Codec.LZ4, COMPRESSIBLE, level=1)
    assert compress(Codec.LZ4, COMPRESSIBLE, level=None) == fast
    assert compress(Codec.LZ4, COMPRESSIBLE, level=9) == fast
    assert len(compress(Codec.LZ4, COMPRESSIBLE, level=10)) < len(fast)


def test_lz4_has_independent_blocks_as_java_requires() -> None:
    packed = compress(Codec.LZ4, INCOMPRESSIBLE, level=None)
    info = lz4.frame.get_frame_info(packed)
    assert not info["block_linked"]
    assert not info["content_checksum"]
    assert lz4.frame.decompress(packed) == INCOMPRESSIBLE


def test_lz4_with_linked_blocks_and_checksums_is_read() -> None:
    packed = lz4.frame.compress(
        INCOMPRESSIBLE, block_linked=True, content_checksum=True, block_checksum=True
    )
    assert bytes(decompress(Codec.LZ4, packed, max_bytes=MAX_BYTES)) == INCOMPRESSIBLE


def test_snappy_is_written_in_blocks_as_java_does() -> None:
    packed = compress(Codec.SNAPPY, INCOMPRESSIBLE, level=None)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    first_length = struct.unpack_from(">i", packed, 16)[0]
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first_length]) == 32 * 1024


def test_raw_snappy_is_read_as_librdkafka_writes_it() -> None:
    packed = bytes(cramjam.snappy.compress_raw(INCOMPRESSIBLE))
    assert bytes(decompress(Codec.SNAPPY, packed, max_bytes=MAX_BYTES)) == INCOMPRESSIBLE


def test_every_codec_of_a_real_kafka_is_read() -> None:
    for name, batch in kafka_batches().items():
        payload = decompress(Codec[name.upper()], payload_of(batch), max_bytes=MAX_BYTES)
        assert bytes(payload).count(b"tidelog ") == sum(range(40))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_result_of_exactly_the_bound_is_allowed(codec: Codec) -> None:
    packed = compress(codec, bytes(100_000), level=None)
    assert bytes(decompress(codec, packed, max_bytes=100_000)) == bytes(100_000)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_result_one_byte_over_the_bound_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, bytes(100_000), level=None)
    with pytest.raises(CorruptBatch, match="more than"):
        decompress(codec, packed, max_bytes=99_999)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bomb_does_not_get_more_memory_than_the_bound(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * 1024 * 1024), level=None)
    assert len(bomb) < 4 * 1024 * 1024
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decompress(codec, bomb, max_bytes=MAX_BYTES)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MAX_BYTES


def test_snappy_that_claims_four_gigabytes_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="more than"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(100), max_bytes=MAX_BYTES)


@pytest.mark.parametrize("length", [-1, 0, 5, 2**31 - 1])
def test_snappy_block_length_that_lies_is_corrupt(length: int) -> None:
    header = compress(Codec.SNAPPY, b"", level=None)
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, header + struct.pack(">i", length) + b"abc", max_bytes=MAX_BYTES)


def test_snappy_block_length_that_is_cut_off_is_corrupt() -> None:
    header = compress(Codec.SNAPPY, b"", level=None)
    with pytest.raises(CorruptBatch, match="cut off"):
        decompress(Codec.SNAPPY, header + b"\x00\x00", max_bytes=MAX_BYTES)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_packed_bytes_that_are_cut_off_are_corrupt(codec: Codec) -> None:
    packed = compress(codec, b"a few bytes " * 20, level=None)
    for size_bytes in range(17 if codec is Codec.SNAPPY else 0, len(packed)):
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:size_bytes], max_bytes=MAX_BYTES)


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.data())
def test_damaged_bytes_are_corrupt_or_decompress_within_the_bound(
    codec: Codec, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, b"some text, some text, " * 30, level=None))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        result = decompress(codec, packed, max_bytes=10_000)
    except CorruptBatch:
        return
    assert len(result) <= 10_000


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=200))
def test_random_bytes_are_corrupt_or_decompress_within_the_bound(codec: Codec, data: bytes) -> None:
    try:
        result = decompress(codec, data, max_bytes=10_000)
    except CorruptBatch:
        return
    assert len(result) <= 10_000

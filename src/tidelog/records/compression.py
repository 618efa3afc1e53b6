"""The codecs that Kafka's clients use, each in the container that Kafka's clients expect.

    gzip     RFC 1952
    snappy   written in the blocks of xerial's SnappyOutputStream, as Java does; also read raw
    lz4      the frame format, independent blocks of 64 KiB, no content checksum
    zstd     its own frames

Nobody can tell from a compressed batch how much memory it will take, so every decompression has a
bound, and a batch that would pass it is refused like any other that is not what it claims to be.
The output buffer grows in steps, so a small batch never costs the memory of the largest allowed.
"""

import struct
from collections.abc import Callable
from io import BytesIO

import cramjam

from tidelog.base.errors import CorruptBatch
from tidelog.base.ports import BytesLike
from tidelog.records.batch import Codec

ZSTD_LEVEL_DEFAULT = 3
# How `compression.gzip.level` spells it, after zlib.
_GZIP_LEVEL_DEFAULT = -1
# What `compression.lz4.level` is unless it is set: Kafka takes the fast compressor for it, and the
# thorough one, which takes ten times as long, for any other.
_LZ4_LEVEL_DEFAULT = 9
_LZ4_LEVEL_FAST = 0
_FIRST_OUTPUT_BYTES = 16 * 1024
_OUTPUT_GROWTH = 4
# Python fills a new buffer with zeros while all other threads wait, tens of milliseconds for tens
# of megabytes. The pages of larger ones are zero when somebody first comes by.
_ZEROED_BYTES_MAX = 4 * 1024 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")

# The library has one exception for damaged input and for a full output buffer.
_OUTPUT_FULL = "failed to write whole buffer"


def compress(codec: Codec, data: BytesLike, *, level: int | None) -> bytes:
    """`data` in the container that `codec` names; `level` None is the codec's own default."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            chosen = None if level == _GZIP_LEVEL_DEFAULT else level
            return bytes(cramjam.gzip.compress(data, level=chosen))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            # Java's reader refuses blocks that refer to earlier ones.
            is_default = level is None or level == _LZ4_LEVEL_DEFAULT
            compressor = cramjam.lz4.Compressor(
                level=_LZ4_LEVEL_FAST if is_default else level,
                content_checksum=False,
                block_linked=False,
            )
            compressor.compress(bytes(data))
            return bytes(compressor.finish())
        case Codec.ZSTD:
            return bytes(
                cramjam.zstd.compress(data, level=ZSTD_LEVEL_DEFAULT if level is None else level)
            )


def decompress(codec: Codec, data: BytesLike, *, max_bytes: int) -> BytesLike:
    """What was compressed; CorruptBatch if that is damaged or longer than `max_bytes`."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _decompress_growing(cramjam.gzip.decompress_into, data, max_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy(data, max_bytes)
        case Codec.LZ4:
            return _decompress_growing(cramjam.lz4.decompress_into, data, max_bytes)
        case Codec.ZSTD:
            return _decompress_growing(cramjam.zstd.decompress_into, data, max_bytes)


def _decompress_growing(
    decompress_into: Callable[[BytesLike, bytearray | memoryview], int],
    data: BytesLike,
    max_bytes: int,
) -> BytesLike:
    capacity_bytes = min(max(_FIRST_OUTPUT_BYTES, _OUTPUT_GROWTH * len(data)), max_bytes)
    while True:
        output = _new_output(capacity_bytes)
        try:
            size_bytes = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise CorruptBatch(f"compressed records are damaged: {error}") from error
            if capacity_bytes == max_bytes:
                raise CorruptBatch(f"records take more than {max_bytes} bytes") from error
            capacity_bytes = min(capacity_bytes * _OUTPUT_GROWTH, max_bytes)
        else:
            return memoryview(output)[:size_bytes]


def _new_output(size_bytes: int) -> bytearray | memoryview:
    if size_bytes <= _ZEROED_BYTES_MAX:
        return bytearray(size_bytes)
    return BytesIO(bytes(size_bytes)).getbuffer()  # Nobody else has these bytes: no copy is made.


def _compress_xerial(data: BytesLike) -> bytes:
    parts = [_XERIAL_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            parts.append(_BLOCK_LENGTH.pack(len(block)))
            parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: BytesLike, max_bytes: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes)
    blocks = []
    size_bytes = 0
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if len(view) - position < _BLOCK_LENGTH.size:
            raise CorruptBatch("snappy block length is cut off")
        length = _BLOCK_LENGTH.unpack_from(view, position)[0]
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(view) - position:
            raise CorruptBatch(f"snappy block of {length} bytes, {len(view) - position} are left")
        block = _decompress_snappy_block(view[position : position + length], max_bytes - size_bytes)
        blocks.append(block)
        size_bytes += len(block)
        position += length
    return b"".join(blocks)


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> bytes:
    try:
        # Stated in the block's first bytes; the decoder holds the block to it.
        size_bytes = cramjam.snappy.decompress_raw_len(block)
        if size_bytes > max_bytes:
            raise CorruptBatch(f"records take more than the {max_bytes} bytes left")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"compressed records are damaged: {error}") from error

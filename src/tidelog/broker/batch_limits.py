"""What a topic's settings say about a batch."""

from tidelog.config.topic import TopicConfig
from tidelog.records.batch import Codec, TimestampType
from tidelog.records.validation import BatchLimits


def batch_limits(config: TopicConfig) -> BatchLimits:
    """The limits of a topic with this `config`."""
    codec = _CODECS.get(config.compression_type)
    return BatchLimits(
        max_message_bytes=config.max_message_bytes,
        segment_bytes=config.segment_bytes,
        timestamp_type=(
            TimestampType.LOG_APPEND_TIME
            if config.is_log_append_time
            else TimestampType.CREATE_TIME
        ),
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        compression=codec,
        compression_level=_compression_level(codec, config),
        compacted=config.is_compacted,
    )


_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def _compression_level(codec: Codec | None, config: TopicConfig) -> int | None:
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None

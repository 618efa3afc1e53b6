from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from posix.unistd cimport write

import logging
from asyncio import BufferedProtocol

from crc32c import crc32c

from tidelog.base.clock import SystemClock
from tidelog.base.errors import ErrorCode, RequestRefused, StorageError, WireError
from tidelog.broker.after_read import AfterRead
from tidelog.broker.append_queue import AppendQueue
from tidelog.broker.connection import Connection
from tidelog.broker.fetch_interest import FetchInterest
from tidelog.broker.flushing import Flusher
from tidelog.broker.follower_runner import Position
from tidelog.broker.heavy_turns import HEAVY_BYTES, SMALL_BYTES
from tidelog.broker.memory import MemoryBound
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.produce_results import refused_partition
from tidelog.broker.replica_fetcher import LULLS, Told
from tidelog.broker.request_tasks import AtTheCostOf
from tidelog.core.partition.effects import ADVANCED
from tidelog.core.partition.epochs import EpochHistory
from tidelog.core.partition.leader import PartitionLeader
from tidelog.core.sessions import FetchSession, FetchTarget, KnownOffsets, next_epoch
from tidelog.records.batch import (
    CHECKSUMMED_POSITION,
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Codec,
)
from tidelog.records.validation import BatchLimits
from tidelog.storage.disk import RealLogFile
from tidelog.storage.indexer import Indexer
from tidelog.storage.log import Log
from tidelog.storage.offset_index import RELATIVE_OFFSET_MAX
from tidelog.storage.readable_log import RECENT_PLACES, ReadableLog
from tidelog.storage.segment import WALK, Segment
from tidelog.storage.time_index import TIME_ENTRY
from tidelog.wire.api import ApiKey
from tidelog.wire.fetch import FetchPartition
from tidelog.wire.produce import encode_produce_response
from tidelog.wire.produce_template import ANSWER_END

logger = logging.getLogger(__name__)

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <stdint.h>
    #include <string.h>
    #include <structmember.h>
    #include <time.h>
    #ifndef SOURCE_CHECKSUM
    #error "hatch_build.py compiles this and says what SOURCE_CHECKSUM is"
    #endif
    static inline uint64_t read_number(const unsigned char *at, int size) {
        uint64_t value = 0;
        for (int i = 0; i < size; i++) value = value << 8 | at[i];
        return value;
    }
    static inline void write_number(unsigned char *at, int size, uint64_t value) {
        for (int i = size; i-- > 0; value >>= 8) at[i] = (unsigned char)value;
    }
    /* CRC-32C by the processor's own instruction; NULL where it has none. */
    typedef uint32_t (*checksum_of)(const unsigned char *, size_t);
    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("sse4.2")))
    static uint32_t checksum_in_hardware(const unsigned char *at, size_t size) {
        uint64_t state = 0xffffffff, eight;
        for (; size >= 8; at += 8, size -= 8) {
            memcpy(&eight, at, 8);
            state = __builtin_ia32_crc32di(state, eight);
        }
        for (; size > 0; at++, size--) state = __builtin_ia32_crc32qi((uint32_t)state, *at);
        return ~(uint32_t)state;
    }
    static checksum_of find_checksum(void) {
        return __builtin_cpu_supports("sse4.2") ? checksum_in_hardware : NULL;
    }
    #elif defined(__ARM_FEATURE_CRC32)
    #include <arm_acle.h>
    static uint32_t checksum_in_hardware(const unsigned char *at, size_t size) {
        uint32_t state = 0xffffffff;
        uint64_t eight;
        for (; size >= 8; at += 8, size -= 8) {
            memcpy(&eight, at, 8);
            state = __crc32cd(state, eight);
        }
        for (; size > 0; at++, size--) state = __crc32cb(state, *at);
        return ~state;
    }
    static checksum_of find_checksum(void) { return checksum_in_hardware; }
    #else
    static checksum_of find_checksum(void) { return NULL; }
    #endif
    #ifdef __linux__
    #include <sys/uio.h>
    static ssize_t read_at(int file, char *to, size_t size, int64_t position, int flags) {
        struct iovec all = {to, size};
        return preadv2(file, &all, 1, position, flags);
    }
    #else
    static ssize_t read_at(int file, char *to, size_t size, int64_t position, int flags) {
        return -1;
    }
    #endif
    static int64_t wall_clock_ms(void) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    /* Where a slot lies in the instances of a class. */
    static inline Py_ssize_t slot_place(PyObject *descriptor) {
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return -1;
        return ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }
    """
    uint64_t read_number(const unsigned char *at, int size)
    void write_number(unsigned char *at, int size, uint64_t value)
    ctypedef uint32_t (*checksum_of)(const unsigned char *at, size_t size)
    checksum_of find_checksum()
    int64_t wall_clock_ms()
    Py_ssize_t read_at(int file, char *to, size_t size, int64_t position, int flags)
    Py_ssize_t slot_place(object descriptor)
    const uint32_t STATED_CHECKSUM "SOURCE_CHECKSUM"

# Of this very file, so that nobody uses what was compiled from an older one.
SOURCE_CHECKSUM = STATED_CHECKSUM

# What Python imports are objects; these are the same as numbers.
cdef int _SUMMED_AT = CHECKSUMMED_POSITION
cdef int _HEADER_BYTES = HEADER_SIZE_BYTES
cdef int _OVERHEAD_BYTES = LOG_OVERHEAD_BYTES
cdef int _MAGIC = MAGIC
cdef uint32_t _CODEC_MASK = CODEC_MASK
cdef uint32_t _LAST_CODEC = Codec.ZSTD
cdef int64_t _RELATIVE_OFFSET_MAX = RELATIVE_OFFSET_MAX
cdef int64_t _RECENT_PLACES = RECENT_PLACES
cdef int _CORRELATION_ID_AT = 4
cdef int64_t _HEAVY_BYTES = HEAVY_BYTES
cdef int64_t _SMALL_BYTES = SMALL_BYTES
cdef int _COMMON_AT = 8
cdef int _END_BYTES = 3
cdef int _ACKS_ALL = -1
# From this size on the library is faster, which takes three parts at a time.
cdef Py_ssize_t _LONG_BYTES = 8192
cdef checksum_of _checksum_in_hardware = find_checksum()

# -- slots -----------------------------------------------------------------------------------------


cdef Py_ssize_t _place(owner, str name) except -1:
    cdef Py_ssize_t place = slot_place(getattr(owner, name, None))
    if place < 0:
        raise ImportError(f"{owner.__name__} has no slot {name}")
    return place


cdef object _get(owner, Py_ssize_t place):
    cdef PyObject *value = (<PyObject **>(<char *><PyObject *>owner + place))[0]
    if value is NULL:
        raise AttributeError(f"a slot of {type(owner).__name__} is empty")
    return <object>value


cdef int64_t _number(owner, Py_ssize_t place) except? -1:
    return _get(owner, place)


cdef int _set(owner, Py_ssize_t place, value) except -1:
    cdef PyObject **slot = <PyObject **>(<char *><PyObject *>owner + place)
    cdef PyObject *before = slot[0]
    Py_INCREF(value)
    slot[0] = <PyObject *>value
    if before is not NULL:
        Py_DECREF(<object>before)
    return 0


cdef bint _is_exhausted(memory) except -1:
    if type(memory) is not MemoryBound:
        return memory.is_exhausted
    return _number(memory, _MEMORY_HELD_BYTES) >= _number(memory, _MEMORY_BOUND_BYTES)


cdef Py_ssize_t _AFTER_READ_DUE = _place(AfterRead, "_due")
cdef Py_ssize_t _AFTER_READ_HAS_ONE = _place(AfterRead, "has_one_request")
cdef Py_ssize_t _AFTER_READ_IS_READING = _place(AfterRead, "_is_reading")
cdef Py_ssize_t _CONNECTION_ANSWERS = _place(Connection, "_answers")
cdef Py_ssize_t _CONNECTION_BLOCKED = _place(Connection, "_blocked")
cdef Py_ssize_t _CONNECTION_BUDGET_BYTES = _place(Connection, "_budget_bytes")
cdef Py_ssize_t _CONNECTION_BUDGET_SPENT = _place(Connection, "_budget_spent")
cdef Py_ssize_t _CONNECTION_CLOSING = _place(Connection, "closing")
cdef Py_ssize_t _CONNECTION_EXCLUSIVE = _place(Connection, "_exclusive")
cdef Py_ssize_t _CONNECTION_FINISHING = _place(Connection, "_finishing")
cdef Py_ssize_t _CONNECTION_HANDLING = _place(Connection, "_handling")
cdef Py_ssize_t _CONNECTION_HELD_BYTES = _place(Connection, "_held_bytes")
cdef Py_ssize_t _CONNECTION_LAST_USED_MS = _place(Connection, "last_used_ms")
cdef Py_ssize_t _CONNECTION_OWN = _place(Connection, "_own")
cdef Py_ssize_t _CONNECTION_READING_PAUSED = _place(Connection, "_reading_paused")
cdef Py_ssize_t _CONNECTION_READY_BYTES = _place(Connection, "_ready_bytes")
cdef Py_ssize_t _CONNECTION_SHORTCUT = _place(Connection, "shortcut")
cdef Py_ssize_t _CONNECTION_TRANSPORT = _place(Connection, "_transport")
cdef Py_ssize_t _CONNECTION_WRITE_PAUSED = _place(Connection, "_write_paused")
cdef Py_ssize_t _RUNNER_CLOCK = _place(PartitionRunner, "_clock")
cdef Py_ssize_t _RUNNER_DELETIONS = _place(PartitionRunner, "_deletions")
cdef Py_ssize_t _RUNNER_EPOCHS = _place(PartitionRunner, "epochs")
cdef Py_ssize_t _RUNNER_FLUSH_MESSAGES = _place(PartitionRunner, "_flush_messages")
cdef Py_ssize_t _RUNNER_FLUSHER = _place(PartitionRunner, "_flusher")
cdef Py_ssize_t _RUNNER_FOLLOWER_WATCHERS = _place(PartitionRunner, "_follower_watchers")
cdef Py_ssize_t _RUNNER_IS_LOG_APPEND_TIME = _place(PartitionRunner, "_is_log_append_time")
cdef Py_ssize_t _RUNNER_IS_OFFLINE = _place(PartitionRunner, "is_offline")
cdef Py_ssize_t _RUNNER_HAS_UNWRITTEN_EPOCH = _place(PartitionRunner, "has_unwritten_epoch")
cdef Py_ssize_t _RUNNER_LEADER = _place(PartitionRunner, "leader")
cdef Py_ssize_t _RUNNER_LIMITS = _place(PartitionRunner, "_limits")
cdef Py_ssize_t _RUNNER_LOG = _place(PartitionRunner, "log")
cdef Py_ssize_t _RUNNER_MAY_REWRITE = _place(PartitionRunner, "_may_rewrite")
cdef Py_ssize_t _RUNNER_PRODUCERS = _place(PartitionRunner, "producers")
cdef Py_ssize_t _RUNNER_QUEUE = _place(PartitionRunner, "_queue")
cdef Py_ssize_t _RUNNER_UNCOMMITTED_BYTES = _place(PartitionRunner, "_uncommitted_bytes")
cdef Py_ssize_t _RUNNER_WAITERS = _place(PartitionRunner, "_waiters")
cdef Py_ssize_t _RUNNER_WATCHERS = _place(PartitionRunner, "_watchers")
cdef Py_ssize_t _QUEUE_MUST_WAIT = _place(AppendQueue, "must_wait")
cdef Py_ssize_t _MEMORY_BOUND_BYTES = _place(MemoryBound, "bound_bytes")
cdef Py_ssize_t _MEMORY_HELD_BYTES = _place(MemoryBound, "held_bytes")
cdef Py_ssize_t _INTEREST_ATTEMPT = _place(FetchInterest, "attempt")
cdef Py_ssize_t _INTEREST_FETCH = _place(FetchInterest, "fetch")
cdef Py_ssize_t _INTEREST_IS_HEAVY = _place(FetchInterest, "is_heavy")
cdef Py_ssize_t _INTEREST_PARKED = _place(FetchInterest, "parked")
cdef Py_ssize_t _INTEREST_WATCHED = _place(FetchInterest, "_watched")
cdef Py_ssize_t _SESSION_DIRTY = _place(FetchSession, "_dirty")
cdef Py_ssize_t _SESSION_EPOCH = _place(FetchSession, "epoch")
cdef Py_ssize_t _SESSION_IS_FULL = _place(FetchSession, "is_full")
cdef Py_ssize_t _SESSION_NOTED = _place(FetchSession, "_noted")
cdef Py_ssize_t _SESSION_TOPICS = _place(FetchSession, "_topics")
cdef Py_ssize_t _TARGET_TOLD = _place(FetchTarget, "told")
cdef Py_ssize_t _TARGET_TOPIC_ID = _place(FetchTarget, "topic_id")
cdef Py_ssize_t _TARGET_WANTED = _place(FetchTarget, "wanted")
cdef Py_ssize_t _LIMITS_MAX_MESSAGE_BYTES = _place(BatchLimits, "max_message_bytes")
cdef Py_ssize_t _LIMITS_SEGMENT_BYTES = _place(BatchLimits, "segment_bytes")
cdef Py_ssize_t _LIMITS_TIMESTAMP_AFTER_MAX_MS = _place(BatchLimits, "timestamp_after_max_ms")
cdef Py_ssize_t _LEADER_END_OFFSET = _place(PartitionLeader, "log_end_offset")
cdef Py_ssize_t _LEADER_EPOCH = _place(PartitionLeader, "leader_epoch")
cdef Py_ssize_t _LEADER_FOLLOWERS = _place(PartitionLeader, "followers")
cdef Py_ssize_t _LEADER_HIGH_WATERMARK = _place(PartitionLeader, "high_watermark")
cdef Py_ssize_t _LEADER_ISR = _place(PartitionLeader, "isr")
cdef Py_ssize_t _LEADER_MIN_ISR = _place(PartitionLeader, "min_insync_replicas")
cdef Py_ssize_t _EPOCHS_LATEST = _place(EpochHistory, "latest_epoch")
cdef Py_ssize_t _FLUSHER_IS_HOLDING = _place(Flusher, "is_holding")
cdef Py_ssize_t _FLUSHER_UNFLUSHED_RECORDS = _place(Flusher, "unflushed_records")
cdef Py_ssize_t _FLUSHER_UNFLUSHED_SINCE_MS = _place(Flusher, "unflushed_since_ms")
cdef Py_ssize_t _LOG_ACTIVE = _place(Log, "_active")
cdef Py_ssize_t _LOG_END_OFFSET = _place(ReadableLog, "log_end_offset")
cdef Py_ssize_t _LOG_START_OFFSET = _place(ReadableLog, "log_start_offset")
cdef Py_ssize_t _LOG_INDEX_INTERVAL_BYTES = _place(Log, "_index_interval_bytes")
cdef Py_ssize_t _LOG_RECENT = _place(ReadableLog, "_recent")
cdef Py_ssize_t _LOG_ROLL_AFTER_MS = _place(Log, "_roll_after_ms")
cdef Py_ssize_t _LOG_SEGMENT_BYTES = _place(Log, "_segment_bytes")
cdef Py_ssize_t _LOG_TRUNCATIONS = _place(Log, "truncation_count")
cdef Py_ssize_t _LOG_WRITING_DUE_AT = _place(Log, "writing_due_at")
cdef Py_ssize_t _SEGMENT_BASE_OFFSET = _place(Segment, "base_offset")
cdef Py_ssize_t _SEGMENT_FILE = _place(Segment, "file")
cdef Py_ssize_t _SEGMENT_INDEXER = _place(Segment, "indexer")
cdef Py_ssize_t _SEGMENT_KNOWN_SIZE_BYTES = _place(Segment, "known_size_bytes")
cdef Py_ssize_t _INDEXER_FIRST_TIMESTAMP_MS = _place(Indexer, "first_timestamp_ms")
cdef Py_ssize_t _INDEXER_MAX_TIMESTAMP = _place(Indexer, "max_timestamp")
cdef Py_ssize_t _INDEXER_UNINDEXED_BYTES = _place(Indexer, "unindexed_bytes")
cdef Py_ssize_t _FILE_DESCRIPTOR = _place(RealLogFile, "_descriptor")
cdef Py_ssize_t _FILE_NOWAIT = _place(RealLogFile, "_nowait")
cdef Py_ssize_t _FILE_SIZE_BYTES = _place(RealLogFile, "size_bytes")

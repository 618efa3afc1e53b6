# cython: language_level=3, boundscheck=False, wraparound=False
"""The ordinary Produce, compiled: from the frame to the file and back without the interpreter.

Most requests of a producer are like the one before: one partition, one sound batch, room in the
segment, nobody to wait for. For those this does what the Python on the left does, and nothing else:

    ProduceTemplate.match, .answer                the bytes of request and answer
    records.validation.validate_produce           `_is_sound`
    PartitionRunner._attempt, ._write             `_may_append`, `_append`
    Log.roll_needed, .append, Segment.append      `_has_room`, `_write`

Rules:

    F1  Whatever is not ordinary gets None before anything has changed, and takes the way through
        Python, which decides. So nothing is refused here and no error has a text here.
    F2  Machines (core/) are asked, not imitated: `on_batch`, `on_appended`, `on_append`.
    F3  An installation without a C compiler lacks this file and differs in nothing but speed.

tests/unit/broker/test_fast_produce.py sends the same requests with and without it and compares
answers, files and books; whoever changes one side is told there.

It reads and writes the slots of a runner and of its log, which nobody else does, and by their place
in memory: a look-up by name takes 25 ns, and there are fifty of them. docs/decisions/0007.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from posix.unistd cimport write

import logging

from crc32c import crc32c

from tidelog.base.clock import SystemClock
from tidelog.base.errors import RequestRefused, StorageError, WireError
from tidelog.broker.append_queue import AppendQueue
from tidelog.broker.flushing import Flusher
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.core.partition.epochs import EpochHistory
from tidelog.core.partition.leader import PartitionLeader
from tidelog.records.batch import (
    CHECKSUMMED_POSITION,
    CODEC_MASK,
    HEADER,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    Codec,
)
from tidelog.records.validation import BatchLimits
from tidelog.storage.disk import RealLogFile
from tidelog.storage.indexer import Indexer
from tidelog.storage.log import Log
from tidelog.storage.offset_index import RELATIVE_OFFSET_MAX
from tidelog.storage.readable_log import RECENT_PLACES, ReadableLog
from tidelog.storage.segment import Segment
from tidelog.wire.produce_template import ANSWER_END

logger = logging.getLogger(__name__)

cdef extern from *:
    """
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
cdef int _COMMON_AT = 8
cdef int _END_BYTES = 3
cdef int _ACKS_ALL = -1
# From this size on the library is faster, which takes three parts at a time.
cdef Py_ssize_t _LONG_BYTES = 8192
cdef checksum_of _checksum_in_hardware = find_checksum()

# -- slots -----------------------------------------------------------------------------------------


cdef Py_ssize_t _place(owner, str name) except -1:
    cdef Py_ssize_t place = slot_place(owner.__dict__.get(name))
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


cdef Py_ssize_t _RUNNER_EPOCHS = _place(PartitionRunner, "epochs")
cdef Py_ssize_t _RUNNER_FLUSH_MESSAGES = _place(PartitionRunner, "_flush_messages")
cdef Py_ssize_t _RUNNER_FLUSHER = _place(PartitionRunner, "_flusher")
cdef Py_ssize_t _RUNNER_IS_LOG_APPEND_TIME = _place(PartitionRunner, "_is_log_append_time")
cdef Py_ssize_t _RUNNER_IS_OFFLINE = _place(PartitionRunner, "is_offline")
cdef Py_ssize_t _RUNNER_HAS_UNWRITTEN_EPOCH = _place(PartitionRunner, "has_unwritten_epoch")
cdef Py_ssize_t _RUNNER_LEADER = _place(PartitionRunner, "leader")
cdef Py_ssize_t _RUNNER_LIMITS = _place(PartitionRunner, "_limits")
cdef Py_ssize_t _RUNNER_LOG = _place(PartitionRunner, "log")
cdef Py_ssize_t _RUNNER_MAY_REWRITE = _place(PartitionRunner, "_may_rewrite")
cdef Py_ssize_t _RUNNER_QUEUE = _place(PartitionRunner, "_queue")
cdef Py_ssize_t _RUNNER_WAITERS = _place(PartitionRunner, "_waiters")
cdef Py_ssize_t _RUNNER_WATCHERS = _place(PartitionRunner, "_watchers")
cdef Py_ssize_t _QUEUE_MUST_WAIT = _place(AppendQueue, "must_wait")
cdef Py_ssize_t _LIMITS_MAX_MESSAGE_BYTES = _place(BatchLimits, "max_message_bytes")
cdef Py_ssize_t _LIMITS_SEGMENT_BYTES = _place(BatchLimits, "segment_bytes")
cdef Py_ssize_t _LIMITS_TIMESTAMP_AFTER_MAX_MS = _place(BatchLimits, "timestamp_after_max_ms")
cdef Py_ssize_t _LEADER_EPOCH = _place(PartitionLeader, "leader_epoch")
cdef Py_ssize_t _LEADER_FOLLOWERS = _place(PartitionLeader, "followers")
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
cdef Py_ssize_t _LOG_WRITING_DUE_AT = _place(Log, "writing_due_at")
cdef Py_ssize_t _SEGMENT_BASE_OFFSET = _place(Segment, "base_offset")
cdef Py_ssize_t _SEGMENT_FILE = _place(Segment, "file")
cdef Py_ssize_t _SEGMENT_INDEXER = _place(Segment, "indexer")
cdef Py_ssize_t _SEGMENT_KNOWN_SIZE_BYTES = _place(Segment, "known_size_bytes")
cdef Py_ssize_t _INDEXER_FIRST_TIMESTAMP_MS = _place(Indexer, "first_timestamp_ms")
cdef Py_ssize_t _INDEXER_MAX_TIMESTAMP = _place(Indexer, "max_timestamp")
cdef Py_ssize_t _INDEXER_UNINDEXED_BYTES = _place(Indexer, "unindexed_bytes")
cdef Py_ssize_t _FILE_DESCRIPTOR = _place(RealLogFile, "_descriptor")
cdef Py_ssize_t _FILE_SIZE_BYTES = _place(RealLogFile, "size_bytes")

# -- one request -----------------------------------------------------------------------------------

# Where a batch lies in memory, and what its header says of it.
cdef struct Batch:
    uint8_t *start
    Py_ssize_t size_bytes
    PyObject *view
    Py_ssize_t view_at
    int32_t last_offset_delta
    int64_t max_timestamp_ms
    int64_t producer_id


cdef class FastProduce:
    """Answers requests of one form. One for each connection that has sent such a request."""

    cdef bytes _start
    cdef bytes _common
    cdef bytes _form
    cdef Py_ssize_t _blanks_at
    cdef str _topic
    cdef bytes _topic_id
    cdef int _acks
    cdef object _partitions
    cdef object _now_ms
    """None: the clock of the system."""

    def __init__(self, template, partitions, clock):
        self._start = template.common_start
        self._common = template.common
        self._topic = template.topic
        self._topic_id = template.topic_id
        self._acks = template.acks
        self._partitions = partitions
        self._now_ms = None if type(clock) is SystemClock else clock.now_ms
        # Length, correlation id, what names the topic; then partition, error code, base offset,
        # append time (none), log start; then what ends an answer that went well.
        before = bytes(4 + 4) + template.named
        blanks = bytes(4 + 2 + 8) + b"\xff" * 8 + bytes(8)
        self._blanks_at = len(before)
        self._form = before + blanks + ANSWER_END

    def answer(self, view, Py_ssize_t start, Py_ssize_t end):
        """The answer to the request in `view[start:end]`; None if that is not ordinary."""
        cdef Py_buffer held
        PyObject_GetBuffer(view, &held, PyBUF_WRITABLE)
        try:
            if not 0 <= start <= end <= held.len:
                raise ValueError(f"{start} to {end} is not within {held.len} bytes")
            return self._answer(view, <uint8_t *>held.buf + start, start, end)
        except AssertionError:
            raise
        except Exception as error:
            # As in dispatch.py: whatever else is wrong costs this one connection.
            logger.exception("request failed")
            raise WireError("internal error while handling a request") from error
        finally:
            PyBuffer_Release(&held)

    cdef object _answer(self, view, uint8_t *frame, Py_ssize_t start, Py_ssize_t end):
        cdef Py_ssize_t partition_at = _COMMON_AT + PyBytes_GET_SIZE(self._common)
        cdef Py_ssize_t records_at = self._records_at(frame, end - start, partition_at + 4)
        cdef Batch batch
        if records_at < 0:
            return None
        batch.start = frame + records_at
        batch.size_bytes = end - _END_BYTES - start - records_at
        topic = self._topic
        if self._topic_id is not None:
            topic = (<dict>self._partitions._names).get(self._topic_id)
        key = (topic, <int32_t>read_number(frame + partition_at, 4))
        runner = (<dict>self._partitions._runners).get(key)
        if type(runner) is not PartitionRunner:
            return None
        cdef int64_t now_ms = wall_clock_ms() if self._now_ms is None else self._now_ms()
        if not _is_sound(&batch, _get(runner, _RUNNER_LIMITS), now_ms):
            return None
        if not _may_append(&batch, runner, self._acks):
            return None
        batch.view = <PyObject *>view
        batch.view_at = start + records_at
        cdef int64_t base_offset = _append(&batch, runner, now_ms)
        if base_offset < 0:
            return None
        cdef int64_t log_start = _number(_get(runner, _RUNNER_LOG), _LOG_START_OFFSET)
        return self._filled_in(frame, partition_at, base_offset, log_start)

    cdef Py_ssize_t _records_at(self, uint8_t *frame, Py_ssize_t size_bytes, Py_ssize_t at):
        """Where the records begin in a request of our form; -1 if it is of another one."""
        cdef uint64_t length = 0
        cdef int shift = 0
        cdef uint8_t byte = 0x80
        if size_bytes < at + 5 + _HEADER_BYTES + _END_BYTES:
            return -1
        if memcmp(frame, PyBytes_AS_STRING(self._start), 4) != 0:
            return -1
        if memcmp(
            frame + _COMMON_AT, PyBytes_AS_STRING(self._common), PyBytes_GET_SIZE(self._common)
        ) != 0:
            return -1
        while byte & 0x80:
            if shift > 28:
                return -1
            byte = frame[at]
            at += 1
            length |= <uint64_t>(byte & 0x7F) << shift
            shift += 7
        if length <= <uint64_t>_HEADER_BYTES:
            return -1
        if length - 1 != <uint64_t>(size_bytes - _END_BYTES - at):
            return -1
        if frame[size_bytes - 1] or frame[size_bytes - 2] or frame[size_bytes - 3]:
            return -1
        return at

    cdef bytes _filled_in(
        self, uint8_t *request, Py_ssize_t partition_at, int64_t base_offset, int64_t log_start
    ):
        cdef Py_ssize_t size_bytes = PyBytes_GET_SIZE(self._form)
        cdef bytes answer = PyBytes_FromStringAndSize(PyBytes_AS_STRING(self._form), size_bytes)
        cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(answer)
        cdef uint8_t *blanks = start + self._blanks_at
        write_number(start, 4, size_bytes - 4)
        memcpy(start + 4, request + _CORRELATION_ID_AT, 4)
        memcpy(blanks, request + partition_at, 4)
        write_number(blanks + 6, 8, base_offset)
        write_number(blanks + 22, 8, log_start)
        return answer


cdef bint _is_sound(Batch *batch, limits, int64_t now_ms) except -1:
    """Whether `validate_produce` would let the batch through, its checksum aside."""
    cdef uint8_t *start = batch.start
    cdef uint32_t attributes = <uint32_t>read_number(start + 21, 2)
    if type(limits) is not BatchLimits:
        return False
    batch.last_offset_delta = <int32_t>read_number(start + 23, 4)
    batch.max_timestamp_ms = <int64_t>read_number(start + 35, 8)
    batch.producer_id = <int64_t>read_number(start + 43, 8)
    if read_number(start, 8) != 0 or start[16] != _MAGIC:
        return False
    if <int64_t>read_number(start + 8, 4) + _OVERHEAD_BYTES != batch.size_bytes:
        return False
    if attributes > _CODEC_MASK or attributes > _LAST_CODEC:
        return False  # There is a flag, or a codec that nobody knows.
    if batch.last_offset_delta < 0:
        return False
    if <int64_t><int32_t>read_number(start + 57, 4) != <int64_t>batch.last_offset_delta + 1:
        return False
    if batch.producer_id >= 0 and (start[51] | start[53]) & 0x80:
        return False  # A negative epoch or sequence.
    if batch.size_bytes > _number(limits, _LIMITS_MAX_MESSAGE_BYTES):
        return False
    if batch.size_bytes > _number(limits, _LIMITS_SEGMENT_BYTES):
        return False
    return batch.max_timestamp_ms < now_ms or (
        batch.max_timestamp_ms - now_ms <= _number(limits, _LIMITS_TIMESTAMP_AFTER_MAX_MS)
    )


cdef bint _may_append(Batch *batch, runner, int acks) except -1:
    """Whether the batch can go to the log at once, as it is, and be answered at once."""
    queue = _get(runner, _RUNNER_QUEUE)
    leader = _get(runner, _RUNNER_LEADER)
    epochs = _get(runner, _RUNNER_EPOCHS)
    flusher = _get(runner, _RUNNER_FLUSHER)
    if type(queue) is not AppendQueue or type(leader) is not PartitionLeader:
        return False
    if type(epochs) is not EpochHistory or type(flusher) is not Flusher:
        return False
    if _get(runner, _RUNNER_IS_OFFLINE) or _get(runner, _RUNNER_HAS_UNWRITTEN_EPOCH):
        return False
    if _get(leader, _LEADER_FOLLOWERS):
        return False  # There are others to tell, and perhaps to wait for.
    if _get(queue, _QUEUE_MUST_WAIT):
        return False
    if _get(runner, _RUNNER_MAY_REWRITE) or _get(runner, _RUNNER_IS_LOG_APPEND_TIME):
        return False
    if _number(leader, _LEADER_EPOCH) != _number(epochs, _EPOCHS_LATEST):
        return False
    if acks == _ACKS_ALL:
        if len(_get(leader, _LEADER_ISR)) < _number(leader, _LEADER_MIN_ISR):
            return False
    if _get(flusher, _FLUSHER_IS_HOLDING):
        return False
    cdef int64_t unflushed = _number(flusher, _FLUSHER_UNFLUSHED_RECORDS)
    if unflushed + batch.last_offset_delta + 1 >= _number(runner, _RUNNER_FLUSH_MESSAGES):
        return False
    return _has_room(batch, _get(runner, _RUNNER_LOG))


cdef bint _has_room(Batch *batch, log) except -1:
    """Whether `Log.roll_needed` would say no, and nothing has to be done about what is there."""
    if type(log) is not Log:
        return False
    segment = _get(log, _LOG_ACTIVE)
    if type(segment) is not Segment:
        return False
    indexer = _get(segment, _SEGMENT_INDEXER)
    if type(indexer) is not Indexer:
        return False
    cdef int64_t used_bytes = _number(segment, _SEGMENT_KNOWN_SIZE_BYTES)
    cdef int64_t first_timestamp_ms = _number(indexer, _INDEXER_FIRST_TIMESTAMP_MS)
    cdef int64_t last_offset = _number(log, _LOG_END_OFFSET) + batch.last_offset_delta
    if used_bytes == 0 or first_timestamp_ms < 0:
        return False
    if used_bytes + batch.size_bytes > _number(log, _LOG_SEGMENT_BYTES):
        return False
    if used_bytes + batch.size_bytes >= _number(log, _LOG_WRITING_DUE_AT):
        return False
    if batch.max_timestamp_ms > first_timestamp_ms and (
        batch.max_timestamp_ms - first_timestamp_ms > _number(log, _LOG_ROLL_AFTER_MS)
    ):
        return False
    if last_offset - _number(segment, _SEGMENT_BASE_OFFSET) > _RELATIVE_OFFSET_MAX:
        return False
    return not _needs_entry(log, indexer) or not indexer.is_full(log._segment_index_bytes)


cdef bint _needs_entry(log, indexer) except -1:
    return _number(indexer, _INDEXER_UNINDEXED_BYTES) > _number(log, _LOG_INDEX_INTERVAL_BYTES)


cdef object _records(Batch *batch):
    """The batch for Python's eyes."""
    return (<object>batch.view)[batch.view_at : batch.view_at + batch.size_bytes]


cdef uint32_t _checksum(Batch *batch) except? 0:
    if _checksum_in_hardware is NULL or batch.size_bytes >= _LONG_BYTES:
        return crc32c(_records(batch)[_SUMMED_AT:])
    return _checksum_in_hardware(batch.start + _SUMMED_AT, batch.size_bytes - _SUMMED_AT)


cdef int64_t _append(Batch *batch, runner, int64_t now_ms) except -2:
    """Append the batch and return its offset, or -1 if the producer or the disk is against it."""
    if _checksum(batch) != <uint32_t>read_number(batch.start + 17, 4):
        return -1
    header = None
    if batch.producer_id >= 0:
        header = tuple.__new__(BatchHeader, HEADER.unpack_from(_records(batch)))
        try:
            if runner.producers.on_batch(header) is not None:
                return -1
        except RequestRefused:
            return -1
    log = _get(runner, _RUNNER_LOG)
    leader = _get(runner, _RUNNER_LEADER)
    flusher = _get(runner, _RUNNER_FLUSHER)
    cdef int64_t base_offset = _number(log, _LOG_END_OFFSET)
    cdef int64_t unflushed = _number(flusher, _FLUSHER_UNFLUSHED_RECORDS)
    cdef uint8_t unstamped[16]
    memcpy(unstamped, batch.start, 16)
    try:
        _write(batch, log, base_offset, _number(leader, _LEADER_EPOCH))
    except StorageError as error:
        memcpy(batch.start, unstamped, 16)
        runner.log_directory.on_failure(error)
        return -1
    if header is not None:
        runner.producers.on_appended(
            header, base_offset=base_offset, timestamp_ms=batch.max_timestamp_ms
        )
    if unflushed == 0:
        _set(flusher, _FLUSHER_UNFLUSHED_SINCE_MS, now_ms)
    _set(flusher, _FLUSHER_UNFLUSHED_RECORDS, unflushed + batch.last_offset_delta + 1)
    if leader.on_append(_get(log, _LOG_END_OFFSET), now_ms=now_ms):
        waiters = _get(runner, _RUNNER_WAITERS)
        if waiters:
            waiters.wake(leader.high_watermark)
        if _get(runner, _RUNNER_WATCHERS):
            runner._announce(batch.size_bytes)
    return base_offset


cdef int _write(Batch *batch, log, int64_t base_offset, int64_t leader_epoch) except -1:
    """Stamp the batch and write it, with the books that `Log.append` keeps."""
    segment = _get(log, _LOG_ACTIVE)
    indexer = _get(segment, _SEGMENT_INDEXER)
    cdef int64_t position = _number(segment, _SEGMENT_KNOWN_SIZE_BYTES)
    cdef int64_t last_offset = base_offset + batch.last_offset_delta
    cdef int64_t relative_offset = last_offset - _number(segment, _SEGMENT_BASE_OFFSET)
    cdef bint needs_entry = _needs_entry(log, indexer)
    if needs_entry:
        indexer.make_room()
    write_number(batch.start, 8, base_offset)
    write_number(batch.start + 12, 4, leader_epoch)
    _append_to_file(batch, _get(segment, _SEGMENT_FILE))
    if needs_entry:
        indexer.add(
            relative_offset,
            position,
            batch.size_bytes,
            batch.max_timestamp_ms,
            log._index_interval_bytes,
        )
    else:
        if batch.max_timestamp_ms > <int64_t>(<tuple>_get(indexer, _INDEXER_MAX_TIMESTAMP))[0]:
            _set(indexer, _INDEXER_MAX_TIMESTAMP, (batch.max_timestamp_ms, relative_offset))
        _set(
            indexer,
            _INDEXER_UNINDEXED_BYTES,
            _number(indexer, _INDEXER_UNINDEXED_BYTES) + batch.size_bytes,
        )
    recent = <list>_get(log, _LOG_RECENT)
    recent[base_offset % _RECENT_PLACES] = (base_offset, segment, position)
    _set(log, _LOG_END_OFFSET, last_offset + 1)  # Before the size: I3 of storage/log.py.
    _set(segment, _SEGMENT_KNOWN_SIZE_BYTES, position + batch.size_bytes)
    return 0


cdef int _append_to_file(Batch *batch, file) except -1:
    """`file.append`, without a detour for the real disk if that takes all at once."""
    cdef int descriptor
    cdef Py_ssize_t written_bytes
    if type(file) is not RealLogFile:
        file.append(_records(batch))
        return 0
    descriptor = _number(file, _FILE_DESCRIPTOR)
    with nogil:
        written_bytes = write(descriptor, batch.start, batch.size_bytes)
    if written_bytes == batch.size_bytes:
        _set(file, _FILE_SIZE_BYTES, _number(file, _FILE_SIZE_BYTES) + written_bytes)
    else:
        # A signal, a full disk, a broken one: the system says which when it is asked again.
        file.append_rest(_records(batch), max(0, written_bytes))
    return 0

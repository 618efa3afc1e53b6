# -- Produce ---------------------------------------------------------------------------------------


cdef class FastProduce:
    """Answers requests of one form. One for each connection that has sent such a request."""

    cdef bytes _start
    cdef bytes _common
    cdef bytes _form
    cdef Py_ssize_t _blanks_at
    cdef str _topic
    cdef bytes _topic_id
    cdef int _acks
    cdef int _version
    cdef double _timeout_s
    cdef object _partitions
    cdef object _connection
    cdef object _loop
    cdef object _after_read
    cdef object _turns
    cdef object _now_ms
    """None: the clock of the system."""

    def __init__(self, template, partitions, clock, connection, loop, after_read, turns):
        self._start = template.common_start
        self._common = template.common
        self._topic = template.topic
        self._topic_id = template.topic_id
        self._acks = template.acks
        self._version = read_number(<uint8_t *>PyBytes_AS_STRING(self._start) + 2, 2)
        self._timeout_s = max(0, template.timeout_ms) / 1000
        self._connection = connection
        self._loop = loop
        self._after_read = after_read
        self._turns = turns
        self._partitions = partitions
        self._now_ms = None if type(clock) is SystemClock else clock.now_ms
        # Length, correlation id, what names the topic; then partition, error code, base offset,
        # append time (none), log start; then what ends an answer that went well.
        before = bytes(4 + 4) + template.named
        blanks = bytes(4 + 2 + 8) + b"\xff" * 8 + bytes(8)
        self._blanks_at = len(before)
        self._form = before + blanks + ANSWER_END

    def end(self):
        """Nobody will use it any more."""

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
        leader = _get(runner, _RUNNER_LEADER)
        cdef int64_t base_offset = _append(&batch, runner, now_ms)
        if base_offset < 0:
            return None
        if batch.size_bytes < _SMALL_BYTES:
            self._turns.note_small()
        cdef bint has_followers = bool(_get(leader, _LEADER_FOLLOWERS))
        after_read = self._after_read
        if after_read.has_one_request:
            after_read.do()
        if self._acks == _ACKS_ALL and has_followers:
            return self._wait(&batch, runner, frame, partition_at, base_offset)
        cdef int64_t log_start = _number(_get(runner, _RUNNER_LOG), _LOG_START_OFFSET)
        return self._filled_in(
            frame + _CORRELATION_ID_AT, frame + partition_at, base_offset, log_start
        )

    cdef object _wait(
        self,
        Batch *batch,
        runner,
        uint8_t *frame,
        Py_ssize_t partition_at,
        int64_t base_offset,
    ):
        """For the followers to have the batch, if they have not."""
        cdef ProduceWait waiting = ProduceWait.__new__(ProduceWait)
        waiting._form = self
        waiting._runner = runner
        memcpy(waiting._correlation_id, frame + _CORRELATION_ID_AT, 4)
        memcpy(waiting._partition, frame + partition_at, 4)
        waiting._base_offset = base_offset
        waiting._end_offset = base_offset + batch.last_offset_delta + 1
        leader = _get(runner, _RUNNER_LEADER)
        if leader is None or leader.acknowledgement(waiting._end_offset) is not None:
            return waiting._answer()
        waiting._timer = self._loop.call_later(self._timeout_s, waiting.expire)
        _get(runner, _RUNNER_WAITERS).add(waiting._end_offset, waiting.on_woken)
        return waiting

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
        self,
        uint8_t *correlation_id,
        uint8_t *partition,
        int64_t base_offset,
        int64_t log_start,
    ):
        cdef Py_ssize_t size_bytes = PyBytes_GET_SIZE(self._form)
        cdef bytes answer = PyBytes_FromStringAndSize(PyBytes_AS_STRING(self._form), size_bytes)
        cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(answer)
        cdef uint8_t *blanks = start + self._blanks_at
        write_number(start, 4, size_bytes - 4)
        memcpy(start + 4, correlation_id, 4)
        memcpy(blanks, partition, 4)
        write_number(blanks + 6, 8, base_offset)
        write_number(blanks + 22, 8, log_start)
        return answer


cdef class ProduceWait:
    """A `PendingAnswer`: acks=all, and not all replicas that count have the batch yet."""

    cdef FastProduce _form
    cdef object _runner
    cdef object _timer
    cdef uint8_t[4] _correlation_id
    cdef uint8_t[4] _partition
    cdef int64_t _base_offset
    cdef int64_t _end_offset
    cdef bint _is_over
    cdef readonly list buffers
    cdef readonly Py_ssize_t size_bytes

    exclusive = False
    gives_way = False

    def on_woken(self):
        """All have it, or the partition is not led here any more."""
        if not self._is_over:
            self._complete(None)

    def expire(self):
        if not self._is_over:
            self._complete(ErrorCode.REQUEST_TIMED_OUT)

    def hurry(self):
        """It does not depend on this broker alone."""

    def abandon(self):
        """Nobody waits any more. The records stay where they are."""
        self._is_over = True
        self._timer.cancel()

    cdef int _complete(self, code) except -1:
        connection = self._form._connection
        self._is_over = True
        self._timer.cancel()
        # Called in the middle of work for other clients, which goes on whatever happens here.
        try:
            answer = self._answer() if code is None else self._refusal(code)
            if not connection.is_closed:
                self.buffers = [answer]
                self.size_bytes = PyBytes_GET_SIZE(answer)
                if not _send_only(connection, self, answer):
                    connection.answer_ready(self.size_bytes)
        except Exception:
            with AtTheCostOf(connection, ApiKey.PRODUCE):
                raise
        return 0

    cdef bytes _answer(self):
        runner = self._runner
        leader = _get(runner, _RUNNER_LEADER)
        if leader is None or _get(runner, _RUNNER_IS_OFFLINE):
            return self._refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        code = leader.acknowledgement(self._end_offset)
        if code is not ErrorCode.NONE:
            return self._refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER if code is None else code)
        cdef int64_t log_start = _number(_get(runner, _RUNNER_LOG), _LOG_START_OFFSET)
        return self._form._filled_in(
            self._correlation_id, self._partition, self._base_offset, log_start
        )

    cdef bytes _refusal(self, code):
        cdef FastProduce form = self._form
        partition = <int32_t>read_number(self._partition, 4)
        return encode_produce_response(
            form._version,
            <int32_t>read_number(self._correlation_id, 4),
            [(form._topic, form._topic_id, [refused_partition(partition, code, None)])],
            throttle_ms=0,
            node_endpoints=(),
        )


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
    log = _get(runner, _RUNNER_LOG)
    if type(log) is not Log:
        return False
    cdef int64_t last_offset = _number(log, _LOG_END_OFFSET) + batch.last_offset_delta
    return _has_room(batch, log, last_offset, batch.size_bytes, 1)


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
    write_number(batch.start, 8, base_offset)
    write_number(batch.start + 12, 4, _number(leader, _LEADER_EPOCH))
    try:
        _write(batch, log, base_offset)
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
    if _get(leader, _LEADER_FOLLOWERS):
        _remember(batch, log)
        _advance(batch, runner, leader, _get(log, _LOG_END_OFFSET), now_ms)
    elif _get(runner, _RUNNER_FOLLOWER_WATCHERS):
        # Those who wait were followers, and are to hear that they are none any more.
        _advance(batch, runner, leader, _get(log, _LOG_END_OFFSET), now_ms)
    elif leader.on_append(_get(log, _LOG_END_OFFSET), now_ms=now_ms):
        waiters = _get(runner, _RUNNER_WAITERS)
        if waiters:
            waiters.wake(leader.high_watermark)
        if _get(runner, _RUNNER_WATCHERS):
            runner._announce(batch.size_bytes)
    return base_offset


cdef int _advance(Batch *batch, runner, leader, end_offset, now_ms) except -1:
    """As `PartitionRunner._advance`, with little of the interpreter for followers that wait."""
    effects = leader.on_append(end_offset, now_ms=now_ms)
    cdef int64_t uncommitted_bytes = _number(runner, _RUNNER_UNCOMMITTED_BYTES)
    _set(runner, _RUNNER_UNCOMMITTED_BYTES, uncommitted_bytes + batch.size_bytes)
    watchers = <dict>_get(runner, _RUNNER_FOLLOWER_WATCHERS)
    satisfied = None
    for target, watcher in watchers.items():
        if not _tell_news(watcher, target, batch.size_bytes):
            satisfied = [target] if satisfied is None else [*satisfied, target]
    if satisfied is not None:
        for target in satisfied:
            del watchers[target]
    if effects is ADVANCED:
        runner._on_high_watermark_advanced()
    elif effects:
        runner._perform(effects)
    return 0


cdef bint _tell_news(watcher, target, Py_ssize_t appended_bytes) except -1:
    """As `FetchInterest.on_news`: whether it wants to be told of the next news as well."""
    if type(watcher) is not FetchInterest:
        return watcher.on_news(target, appended_bytes)
    parked, session = _get(watcher, _INTEREST_PARKED), _get(watcher, _INTEREST_FETCH)
    if type(parked) is not FetchWait or type(session) is not FetchSession:
        return watcher.on_news(target, appended_bytes)
    if target.is_wanted:
        _get(session, _SESSION_DIRTY)[target] = None
    (<FetchWait>parked)._hear(appended_bytes)
    return True


cdef bint _send_only(connection, pending, bytes answer) except -1:
    """Send what is all that a connection has to do; False if it has more, and nothing was done."""
    if type(connection) is not Connection:
        return False
    transport = _get(connection, _CONNECTION_TRANSPORT)
    answers = _get(connection, _CONNECTION_ANSWERS)
    if transport is None or len(answers) != 1 or answers[0] is not pending:
        return False
    if _get(connection, _CONNECTION_HANDLING) or _get(connection, _CONNECTION_BLOCKED):
        return False
    if _get(connection, _CONNECTION_WRITE_PAUSED) or _get(connection, _CONNECTION_READING_PAUSED):
        return False
    if _get(connection, _CONNECTION_FINISHING) or _get(connection, _CONNECTION_BUDGET_SPENT):
        return False
    if _get(connection, _CONNECTION_READY_BYTES) or _get(connection, _CONNECTION_HELD_BYTES):
        return False
    answers.popleft()
    if pending.exclusive:
        _set(connection, _CONNECTION_EXCLUSIVE, False)
    transport.write(answer)
    if _get(connection, _CONNECTION_WRITE_PAUSED):
        connection._hold_unsent()
    return True

# -- Fetch, as a follower --------------------------------------------------------------------------

# Correlation id, tagged fields, throttle time, error code, session id, one topic, its id, one
# partition; then what `_RESULT_BYTES` counts.
cdef int _ANSWERED_SESSION_AT = 4 + 1 + 4 + 2
cdef int _ANSWERED_TOPIC_AT = _ANSWERED_SESSION_AT + 4 + 1
cdef int _ANSWERED_RESULT_AT = _ANSWERED_TOPIC_AT + 16 + 1
cdef uint32_t _SPECIAL_FLAGS = TRANSACTIONAL_FLAG | CONTROL_FLAG


cdef class FastFollow:
    """Takes in answers that bring one batch of one partition, and makes the request after it."""

    cdef object _fetcher
    cdef bytes _form
    cdef Py_ssize_t _topic_at
    cdef object _form_of

    def __init__(self, fetcher):
        self._fetcher = fetcher

    def take_in(self, view):
        """The next request; None if the answer is not ordinary and nothing was done with it.

        True: it was taken in, but what to ask for next is not as simple.
        """
        cdef Py_buffer held
        PyObject_GetBuffer(view, &held, PyBUF_SIMPLE)
        try:
            return self._take_in(view, <uint8_t *>held.buf, held.len)
        finally:
            PyBuffer_Release(&held)

    cdef object _take_in(self, view, uint8_t *answer, Py_ssize_t size_bytes):
        cdef Batch batch
        cdef uint8_t *result = answer + _ANSWERED_RESULT_AT
        cdef Py_ssize_t records_at = self._records_at(answer, size_bytes)
        if records_at < 0:
            return None
        fetcher = self._fetcher
        topic_id = PyBytes_FromStringAndSize(<char *>answer + _ANSWERED_TOPIC_AT, _TOPIC_ID_BYTES)
        partition = <int32_t>read_number(result, 4)
        key = (topic_id, partition)
        told = (<dict>fetcher._told).get(key)
        if told is None or not self._is_expected(key, told, answer):
            return None
        batch.view = <PyObject *>view
        batch.view_at = records_at
        batch.start = answer + records_at
        batch.size_bytes = size_bytes - 3 - records_at
        follower = (<tuple>told)[0]
        runner = follower._partition
        if not self._is_of_this_lane(batch.size_bytes) or not _may_follow(&batch, follower, told):
            return None
        if <int64_t>read_number(result + 22, 8) > _number(
            _get(runner, _RUNNER_LOG), _LOG_START_OFFSET
        ):
            return None
        if not _copy(&batch, runner, follower._clock):
            return None
        log = _get(runner, _RUNNER_LOG)
        high_watermark = <int64_t>read_number(result + 6, 8)
        end_offset = _get(log, _LOG_END_OFFSET)
        if follower.machine.on_fetched(
            leader_high_watermark=high_watermark, log_end_offset=end_offset
        ):
            runner.on_committed()
        follower.is_lagging = high_watermark > end_offset
        fetcher._answered_count += 1
        fetcher._outstanding.popleft()
        if fetcher._lulls:
            fetcher._lulls.pop(key, None)
        if fetcher._changed:
            fetcher._changed[key] = None
            return True
        return self._next_request(key, follower, (<tuple>told)[1], end_offset)

    cdef Py_ssize_t _records_at(self, uint8_t *answer, Py_ssize_t size_bytes):
        """Where the records begin in an answer with one partition; -1 if it is another one."""
        cdef uint8_t *result = answer + _ANSWERED_RESULT_AT
        cdef Py_ssize_t at = _ANSWERED_RESULT_AT + _RESULT_BYTES
        cdef uint64_t length = 0
        cdef int shift = 0
        cdef uint8_t byte = 0x80
        if size_bytes < at + 5 + _HEADER_BYTES + 3:
            return -1
        # No tagged fields, no error; one topic, one partition without an error.
        if answer[4] or read_number(answer + 9, 2) or answer[_ANSWERED_TOPIC_AT - 1] != 2:
            return -1
        if answer[_ANSWERED_RESULT_AT - 1] != 2 or read_number(result + 4, 2) or result[30] > 1:
            return -1
        while byte & 0x80:
            if shift > 28:
                return -1
            byte = answer[at]
            at += 1
            length |= <uint64_t>(byte & 0x7F) << shift
            shift += 7
        if length <= <uint64_t>_HEADER_BYTES:
            return -1
        if length - 1 != <uint64_t>(size_bytes - 3 - at):
            return -1
        if answer[size_bytes - 1] or answer[size_bytes - 2] or answer[size_bytes - 3]:
            return -1
        return at

    cdef bint _is_expected(self, key, told, uint8_t *answer) except -1:
        """Whether it answers the only question there is, within the session."""
        fetcher = self._fetcher
        return (
            not fetcher._changed
            and not fetcher._is_unreachable
            and not fetcher._throttle.is_active
            and fetcher._hopes_for_session
            and len(fetcher._outstanding) == 1
            and fetcher._left_session_id == 0
            and fetcher._session_id != 0
            and <int32_t>read_number(answer + _ANSWERED_SESSION_AT, 4) == fetcher._session_id
            and (<dict>fetcher._followers).get(key) is (<tuple>told)[0]
            and (<tuple>told)[2] <= fetcher._answered_count + 1
            and key not in <dict>fetcher._refused
        )

    cdef bint _is_of_this_lane(self, Py_ssize_t size_bytes) except -1:
        fetcher = self._fetcher
        return (size_bytes >= fetcher.bulk_bytes) == fetcher.is_bulk

    cdef object _next_request(self, key, follower, before, end_offset):
        fetcher = self._fetcher
        form_of = (fetcher._session_id, fetcher._broker_epoch())
        if form_of != self._form_of:
            self._form, self._topic_at = fetcher.request_form()
            self._form_of = form_of
        number = fetcher._sent_count + 1
        epoch = fetcher._session_epoch
        correlation_id = fetcher._peer.next_correlation_id()
        position = tuple.__new__(Position, (before[0], end_offset, before[2], before[3]))
        (<dict>fetcher._told)[key] = tuple.__new__(Told, (follower, position, number))
        fetcher._sent_count = number
        fetcher._session_epoch = next_epoch(epoch)
        cdef bytes request = PyBytes_FromStringAndSize(
            PyBytes_AS_STRING(self._form), PyBytes_GET_SIZE(self._form)
        )
        cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(request)
        cdef uint8_t *topic = start + self._topic_at
        write_number(start + 4 + _CORRELATION_ID_AT, 4, <uint64_t><int64_t>correlation_id)
        write_number(topic - 5, 4, <uint64_t><int64_t>epoch)
        memcpy(topic, PyBytes_AS_STRING(<bytes>(<tuple>key)[0]), _TOPIC_ID_BYTES)
        topic += _TOPIC_ID_BYTES + 1
        write_number(topic, 4, <uint64_t><int64_t>(<tuple>key)[1])
        write_number(topic + 4, 4, <uint64_t><int64_t>before[0])
        write_number(topic + 8, 8, <uint64_t><int64_t>end_offset)
        write_number(topic + 16, 4, <uint64_t><int64_t>before[2])
        write_number(topic + 20, 8, <uint64_t><int64_t>before[3])
        return request


cdef bint _may_follow(Batch *batch, follower, told) except -1:
    """Whether the batch is what comes next, and can go to the log at once."""
    cdef uint8_t *start = batch.start
    runner = follower._partition
    if type(runner) is not PartitionRunner or follower.is_busy or follower.is_stopped:
        return False
    log = _get(runner, _RUNNER_LOG)
    epochs = _get(runner, _RUNNER_EPOCHS)
    flusher = _get(runner, _RUNNER_FLUSHER)
    if type(log) is not Log or type(epochs) is not EpochHistory or type(flusher) is not Flusher:
        return False
    if _get(runner, _RUNNER_IS_OFFLINE) or _get(runner, _RUNNER_QUEUE).is_busy:
        return False
    latest_epoch = _get(epochs, _EPOCHS_LATEST)
    end_offset = _get(log, _LOG_END_OFFSET)
    if (<tuple>told)[1] != (
        follower.machine.leader_epoch, end_offset, latest_epoch, _get(log, _LOG_START_OFFSET)
    ):
        return False
    batch.last_offset_delta = <int32_t>read_number(start + 23, 4)
    batch.max_timestamp_ms = <int64_t>read_number(start + 35, 8)
    batch.producer_id = <int64_t>read_number(start + 43, 8)
    if start[16] != _MAGIC or batch.last_offset_delta < 0:
        return False
    if <int64_t>read_number(start + 8, 4) + _OVERHEAD_BYTES != batch.size_bytes:
        return False
    if <int64_t>read_number(start, 8) != <int64_t>end_offset:
        return False
    if <int32_t>read_number(start + 12, 4) != <int64_t>latest_epoch:
        return False
    if read_number(start + 21, 2) & _SPECIAL_FLAGS:
        return False
    cdef int64_t unflushed = _number(flusher, _FLUSHER_UNFLUSHED_RECORDS)
    cdef int64_t record_count = <int32_t>read_number(start + 57, 4)
    if record_count < 0 or unflushed + record_count >= _number(runner, _RUNNER_FLUSH_MESSAGES):
        return False
    if not _has_room(batch, log):
        return False
    return _checksum(batch) == <uint32_t>read_number(start + 17, 4)


cdef bint _copy(Batch *batch, runner, clock) except -1:
    """Append the leader's batch as it is. False if the disk is against it."""
    log = _get(runner, _RUNNER_LOG)
    flusher = _get(runner, _RUNNER_FLUSHER)
    cdef int64_t unflushed = _number(flusher, _FLUSHER_UNFLUSHED_RECORDS)
    cdef int64_t record_count = <int32_t>read_number(batch.start + 57, 4)
    try:
        _write(batch, log, <int64_t>read_number(batch.start, 8))
    except StorageError as error:
        runner.log_directory.on_failure(error)
        return False
    if batch.producer_id >= 0:
        runner.producers.on_replayed(
            tuple.__new__(BatchHeader, HEADER.unpack_from(_records(batch)))
        )
    if unflushed == 0:
        _set(flusher, _FLUSHER_UNFLUSHED_SINCE_MS, clock.now_ms())
    _set(flusher, _FLUSHER_UNFLUSHED_RECORDS, unflushed + record_count)
    return True

# -- Fetch, as a follower --------------------------------------------------------------------------

# Correlation id, tagged fields, throttle time, error code, session id.
cdef int _ANSWERED_SESSION_AT = 4 + 1 + 4 + 2
cdef int _ANSWERED_TOPICS_AT = _ANSWERED_SESSION_AT + 4
cdef uint32_t _SPECIAL_FLAGS = TRANSACTIONAL_FLAG | CONTROL_FLAG
cdef int _LULLS_MAX = LULLS


cdef class Copied:
    """What an answer says of one partition, found to be what comes next in its log."""

    cdef tuple key
    cdef object follower
    cdef object told
    cdef object position
    cdef object runner
    cdef int64_t high_watermark
    cdef Py_ssize_t records_at
    cdef Py_ssize_t records_bytes


cdef class FastFollow:
    """Takes in answers that bring what comes next, and makes the request after it."""

    cdef object _fetcher
    cdef bytes _form
    cdef Py_ssize_t _topics_at
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

    def answered(self, bytearray buffer, Py_ssize_t size_bytes):
        """Whether `buffer[:size_bytes]` was one whole answer that was taken in and gone on from.

        The same as `take_in`, but the question that was answered is put again with another
        content: less is made and thrown away.
        """
        cdef uint8_t *start = <uint8_t *>PyByteArray_AS_STRING(buffer)
        fetcher = self._fetcher
        if size_bytes < 8 or <int64_t>read_number(start, 4) != size_bytes - 4:
            return False
        if fetcher._is_stopped or fetcher._failure is not None:
            return False
        connection = fetcher._peer._connection
        if connection is None:
            return False  # It is being made, and nobody has asked for anything.
        waiting, outstanding = connection._waiting, fetcher._outstanding
        if len(waiting) != 1 or len(outstanding) != 1 or waiting[0] is not outstanding[0]:
            return False
        unanswered = outstanding[0]
        if memcmp(start + 4, PyBytes_AS_STRING(<bytes>unanswered.correlation_id), 4) != 0:
            return False
        fetcher._is_answered_now = True
        try:
            request = self._take_in(memoryview(buffer)[4:size_bytes], start + 4, size_bytes - 4)
            if request is None:
                return False
            if request is True:
                waiting.popleft()
                unanswered.forget()
                fetcher.go_on()
            else:
                unanswered.correlation_id = request[8:12]
                unanswered.deadline_s = fetcher._loop.time() + connection._timeout_s
                outstanding.append(unanswered)
                connection._transport.write(request)
        except Exception as error:
            fetcher.on_exception(error)
        finally:
            fetcher._is_answered_now = False
        return True

    cdef object _take_in(self, view, uint8_t *answer, Py_ssize_t size_bytes):
        cdef Copied each
        fetcher = self._fetcher
        if size_bytes < _ANSWERED_TOPICS_AT + 2 or not self._is_expected(answer):
            return None
        parts = self._parts(view, answer, size_bytes)
        if parts is None:
            return None
        # From here on nothing is refused, and everything has to be done.
        fetcher._answered_count += 1
        fetcher._outstanding.popleft()
        done = {}
        for each in parts:
            if self._append(view, answer, each):
                done[each.key] = None
            else:
                # The disk is against it. As in Python: it is left alone for a while.
                fetcher._changed.update(done)
                fetcher.on_refused(each.key)
        if fetcher._changed:
            for each in parts:
                fetcher._changed[each.key] = None
            return True
        if fetcher._outstanding and not parts:
            return True  # Nothing is new, and a question is under way.
        return self._next_request(parts)

    cdef bint _is_expected(self, uint8_t *answer) except -1:
        """Whether it answers a question within the session, and there is nothing else to ask."""
        fetcher = self._fetcher
        return bool(
            answer[4] == 0
            and read_number(answer + 9, 2) == 0
            and not fetcher._changed
            and not fetcher._is_unreachable
            and not fetcher._throttle.is_active
            and fetcher._hopes_for_session
            and fetcher._told  # Else there is nothing to ask for.
            and len(fetcher._outstanding) > 0
            and fetcher._left_session_id == 0
            and fetcher._session_id != 0
            and <int32_t>read_number(answer + _ANSWERED_SESSION_AT, 4) == fetcher._session_id
        )

    cdef list _parts(self, view, uint8_t *answer, Py_ssize_t size_bytes):
        """All that the answer says; None if any of it is not ordinary."""
        cdef Py_ssize_t at = _ANSWERED_TOPICS_AT
        cdef int topic_count, partition_count
        cdef list parts = []
        cdef Copied part
        topics = set()
        keys = set()
        if answer[at] == 0 or answer[at] & 0x80:
            return None
        topic_count = answer[at] - 1
        at += 1
        for _ in range(topic_count):
            if at + _TOPIC_ID_BYTES + 1 > size_bytes:
                return None
            topic_id = PyBytes_FromStringAndSize(<char *>answer + at, _TOPIC_ID_BYTES)
            at += _TOPIC_ID_BYTES
            if topic_id in topics or answer[at] == 0 or answer[at] & 0x80:
                return None
            topics.add(topic_id)
            partition_count = answer[at] - 1
            at += 1
            for _ in range(partition_count):
                part = self._part(view, answer, &at, size_bytes, topic_id)
                if part is None or part.key in keys or len(parts) == _NAMED_MAX:
                    return None
                keys.add(part.key)
                parts.append(part)
            if at + 1 > size_bytes or answer[at] != 0:
                return None
            at += 1
        return parts if at + 1 == size_bytes and answer[at] == 0 else None

    cdef Copied _part(
        self, view, uint8_t *answer, Py_ssize_t *position, Py_ssize_t size_bytes, bytes topic_id
    ):
        cdef Py_ssize_t at = position[0]
        cdef uint8_t *result = answer + at
        cdef uint64_t length = 0
        cdef int shift = 0
        cdef uint8_t byte = 0x80
        cdef Copied part
        if at + _RESULT_BYTES > size_bytes or read_number(result + 4, 2) or result[30] > 1:
            return None
        at += _RESULT_BYTES
        while byte & 0x80:
            if shift > 28 or at >= size_bytes:
                return None
            byte = answer[at]
            at += 1
            length |= <uint64_t>(byte & 0x7F) << shift
            shift += 7
        if length == 0 or length - 1 >= <uint64_t>(size_bytes - at):
            return None
        part = Copied.__new__(Copied)
        part.records_at = at
        part.records_bytes = <Py_ssize_t>length - 1
        at += part.records_bytes
        if answer[at] != 0:
            return None
        position[0] = at + 1
        part.key = (topic_id, <int32_t>read_number(result, 4))
        part.high_watermark = <int64_t>read_number(result + 6, 8)
        if not self._is_told(part) or not self._is_of_this_lane(part):
            return None
        if not _may_follow(part, view, answer):
            return None
        log = _get(part.runner, _RUNNER_LOG)
        if <int64_t>read_number(result + 22, 8) > _number(log, _LOG_START_OFFSET):
            return None
        return part

    cdef bint _is_told(self, Copied part) except -1:
        """Whether it is what was asked for by who follows now."""
        fetcher = self._fetcher
        told = (<dict>fetcher._told).get(part.key)
        if told is None:
            return False
        part.follower, part.told = (<tuple>told)[0], (<tuple>told)[1]
        return (
            (<dict>fetcher._followers).get(part.key) is part.follower
            and (<tuple>told)[2] <= fetcher._answered_count + 1
            and part.key not in <dict>fetcher._refused
        )

    cdef bint _is_of_this_lane(self, Copied part) except -1:
        fetcher = self._fetcher
        if part.records_bytes >= fetcher.bulk_bytes:
            return fetcher.is_bulk
        return not fetcher.is_bulk or fetcher._lulls.get(part.key, 0) + 1 < _LULLS_MAX

    cdef bint _append(self, view, uint8_t *answer, Copied part) except -1:
        """Append the leader's batches as they are, and learn what is committed."""
        cdef Batch batch
        cdef Py_ssize_t end = part.records_at + part.records_bytes
        fetcher = self._fetcher
        runner, follower = part.runner, part.follower
        if _get(runner, _RUNNER_IS_OFFLINE):
            return False  # The disk has failed a moment ago.
        batch.view = <PyObject *>view
        batch.view_at = part.records_at
        while batch.view_at < end:
            _read_batch(&batch, answer + batch.view_at)
            if not _copy(&batch, runner, follower._clock):
                return False
            batch.view_at += batch.size_bytes
        if 0 < part.records_bytes < _SMALL_BYTES and not fetcher.is_bulk:
            fetcher._peer.turns.note_small()
        end_offset = _get(_get(runner, _RUNNER_LOG), _LOG_END_OFFSET)
        if follower.machine.on_fetched(
            leader_high_watermark=part.high_watermark, log_end_offset=end_offset
        ):
            runner.on_committed()
        follower.is_lagging = part.high_watermark > end_offset
        told = <tuple>part.told
        part.position = tuple.__new__(Position, (told[0], end_offset, told[2], told[3]))
        if part.records_bytes >= fetcher.bulk_bytes:
            if fetcher._lulls:
                fetcher._lulls.pop(part.key, None)
        elif fetcher.is_bulk:
            fetcher._lulls[part.key] = fetcher._lulls.get(part.key, 0) + 1
        return True

    cdef object _next_request(self, list parts):
        """For what was appended, from where it ends now."""
        cdef Copied each
        fetcher = self._fetcher
        form_of = (fetcher._session_id, fetcher._broker_epoch())
        if form_of != self._form_of:
            self._form, self._topics_at = fetcher.request_form()
            self._form_of = form_of
        number = fetcher._sent_count + 1
        epoch = fetcher._session_epoch
        correlation_id = fetcher._peer.next_correlation_id()
        fetcher._sent_count = number
        fetcher._session_epoch = next_epoch(epoch)
        told = <dict>fetcher._told
        named = []
        for each in parts:
            if each.records_bytes:
                told[each.key] = tuple.__new__(Told, (each.follower, each.position, number))
                named.append(each)
        return self._filled_in(named, correlation_id, epoch)

    cdef bytes _filled_in(self, list named, correlation_id, epoch):
        cdef Copied each
        cdef Py_ssize_t end_bytes = PyBytes_GET_SIZE(self._form) - self._topics_at - 1
        cdef Py_ssize_t size_bytes = self._topics_at + 1 + end_bytes
        before = None
        for each in named:
            if each.key[0] != before:
                before = each.key[0]
                size_bytes += _TOPIC_ID_BYTES + 1 + 1
            size_bytes += _WANTED_BYTES + 1
        cdef bytes request = PyBytes_FromStringAndSize(NULL, size_bytes)
        cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(request)
        cdef uint8_t *topics = start + self._topics_at
        cdef uint8_t *at = topics + 1
        cdef uint8_t *count = NULL
        memcpy(start, PyBytes_AS_STRING(self._form), self._topics_at)
        write_number(start, 4, size_bytes - 4)
        write_number(start + 4 + _CORRELATION_ID_AT, 4, <uint64_t><int64_t>correlation_id)
        write_number(topics - 4, 4, <uint64_t><int64_t>epoch)
        topics[0] = 1  # One more than there are, here and below.
        before = None
        for each in named:
            if each.key[0] != before:
                before = each.key[0]
                if count is not NULL:
                    at[0] = 0
                    at += 1
                topics[0] += 1
                memcpy(at, PyBytes_AS_STRING(<bytes>before), _TOPIC_ID_BYTES)
                count = at + _TOPIC_ID_BYTES
                count[0] = 1
                at = count + 1
            count[0] += 1
            self._write_wanted(at, each)
            at += _WANTED_BYTES + 1
        if count is not NULL:
            at[0] = 0
            at += 1
        memcpy(at, PyBytes_AS_STRING(self._form) + self._topics_at + 1, end_bytes)
        assert at + end_bytes == start + size_bytes
        return request

    cdef int _write_wanted(self, uint8_t *at, Copied part) except -1:
        position = <tuple>part.position
        write_number(at, 4, <uint64_t><int64_t>part.key[1])
        write_number(at + 4, 4, <uint64_t><int64_t>position[0])
        write_number(at + 8, 8, <uint64_t><int64_t>position[1])
        write_number(at + 16, 4, <uint64_t><int64_t>position[2])
        write_number(at + 20, 8, <uint64_t><int64_t>position[3])
        write_number(at + 28, 4, <uint64_t><int64_t>self._fetcher.partition_max_bytes)
        at[_WANTED_BYTES] = 0
        return 0


cdef int _read_batch(Batch *batch, uint8_t *start):
    batch.start = start
    batch.size_bytes = <Py_ssize_t>read_number(start + 8, 4) + _OVERHEAD_BYTES
    batch.last_offset_delta = <int32_t>read_number(start + 23, 4)
    batch.max_timestamp_ms = <int64_t>read_number(start + 35, 8)
    batch.producer_id = <int64_t>read_number(start + 43, 8)
    return 0


cdef bint _may_follow(Copied part, view, uint8_t *answer) except -1:
    """Whether the batches are what comes next, sound, and can go to the log at once."""
    cdef Batch batch
    cdef Py_ssize_t end = part.records_at + part.records_bytes
    cdef int64_t record_count = 0, batch_count = 0, records
    follower = part.follower
    runner = part.runner = follower._partition
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
    cdef int64_t offset = _number(log, _LOG_END_OFFSET)
    if part.told != (
        follower.machine.leader_epoch, offset, latest_epoch, _get(log, _LOG_START_OFFSET)
    ):
        return False
    batch.view = <PyObject *>view
    batch.view_at = part.records_at
    while batch.view_at < end:
        if end - batch.view_at < _HEADER_BYTES:
            return False
        _read_batch(&batch, answer + batch.view_at)
        records = <int32_t>read_number(batch.start + 57, 4)
        if batch.size_bytes < _HEADER_BYTES or batch.size_bytes > end - batch.view_at:
            return False
        if batch.start[16] != _MAGIC or batch.last_offset_delta < 0 or records < 0:
            return False
        if <int64_t>read_number(batch.start, 8) != offset:
            return False
        if <int32_t>read_number(batch.start + 12, 4) != <int64_t>latest_epoch:
            return False
        if read_number(batch.start + 21, 2) & _SPECIAL_FLAGS:
            return False
        offset += <int64_t>batch.last_offset_delta + 1
        record_count += records
        batch_count += 1
        if not _has_room(&batch, log, offset - 1, part.records_bytes, batch_count):
            return False
        if _checksum(&batch) != <uint32_t>read_number(batch.start + 17, 4):
            return False
        batch.view_at += batch.size_bytes
    cdef int64_t unflushed = _number(flusher, _FLUSHER_UNFLUSHED_RECORDS)
    return unflushed + record_count < _number(runner, _RUNNER_FLUSH_MESSAGES)


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

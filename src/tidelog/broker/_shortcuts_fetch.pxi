# -- Fetch, as a leader ----------------------------------------------------------------------------

# Between the end of what all requests of a session have in common and its first topic.
cdef int _EPOCH_BYTES = 4
cdef int _TOPIC_ID_BYTES = 16
cdef int _WANTED_BYTES = 32
cdef int _WALK_BYTES = WALK.size
# More partitions at a time than this are not news of a few records.
cdef int _NAMED_MAX = 64
cdef int _RESULT_BYTES = 4 + 2 + 8 + 8 + 8 + 1 + 4


cdef class FastFetch:
    """Takes in requests of a follower's session that say where it stands, and waits with it."""

    cdef bytes _start
    cdef bytes _common
    cdef bytes _end
    cdef object _handler
    cdef object _reader
    cdef object _sessions
    cdef object _interests
    cdef object _partitions
    cdef object _connection
    cdef object _interest
    cdef object _session
    cdef object _header
    cdef object _request
    cdef object _loop
    cdef object _after_read
    cdef object _turns
    cdef object _throttle
    cdef object _answer_memory
    cdef object _timer
    cdef object _replica
    cdef object _replica_epoch
    cdef object _session_id
    cdef int64_t _min_bytes
    cdef double _wait_s
    cdef double _deadline_s
    cdef FetchWait _waiting

    def __init__(self, handler, connection, interest, header, request, bytes frame, end):
        """`frame` is a request of this session and `end` what follows its topics."""
        cdef Py_ssize_t common_end = header.body_position + 4 + 4 + 4 + 1 + 4
        self._start = frame[:4]
        self._common = frame[_COMMON_AT:common_end]
        self._end = end
        self._handler = handler
        self._reader = handler.reader
        self._sessions = handler.sessions
        self._interests = handler.interests
        self._partitions = handler.reader.partitions
        self._connection = connection
        self._interest = interest
        self._session = interest.fetch
        if type(interest) is not FetchInterest or type(self._session) is not FetchSession:
            raise TypeError("not the session of a follower")  # Their slots are found by place.
        self._throttle = handler.reader.throttle
        self._answer_memory = handler.answer_memory
        self._session_id = interest.fetch.session_id
        self._header = header
        self._request = request._replace(topics=[], forgotten=[])
        self._loop = handler.loop
        self._after_read = handler.after_read
        self._turns = handler.turns
        self._replica = request.replica_id
        self._replica_epoch = request.replica_epoch
        self._min_bytes = request.min_bytes
        self._wait_s = request.max_wait_ms / 1000

    def answer(self, view, Py_ssize_t start, Py_ssize_t end):
        """The answer to the request in `view[start:end]`; None if that is not ordinary."""
        cdef Py_buffer held
        PyObject_GetBuffer(view, &held, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= end <= held.len:
                raise ValueError(f"{start} to {end} is not within {held.len} bytes")
            return self._answer(<uint8_t *>held.buf + start, end - start)
        except AssertionError:
            raise
        except Exception as error:
            # As in dispatch.py: whatever else is wrong costs this one connection.
            logger.exception("request failed")
            raise WireError("internal error while handling a request") from error
        finally:
            PyBuffer_Release(&held)

    cdef object _answer(self, uint8_t *frame, Py_ssize_t size_bytes):
        cdef Py_ssize_t at = _COMMON_AT + PyBytes_GET_SIZE(self._common)
        cdef Py_ssize_t end = size_bytes - PyBytes_GET_SIZE(self._end)
        session = self._session
        if not self._is_of_our_form(frame, at, end) or not self._may_serve():
            return None
        if <int32_t>read_number(frame + at, 4) != _number(session, _SESSION_EPOCH):
            return None
        named = self._named(frame, at + _EPOCH_BYTES, end)
        if named is None or not self._sessions.has_room_for(len(named)):
            return None
        # From here on nothing is refused, and everything has to be done.
        dirty = _get(session, _SESSION_DIRTY)
        for target, runner, leader, wanted in named:
            _set(target, _TARGET_WANTED, wanted)
            dirty[target] = None
        _set(session, _SESSION_EPOCH, next_epoch(_get(session, _SESSION_EPOCH)))
        self._sessions.touch(session, self._handler.monotonic_ms())
        for target, runner, leader, wanted in named:
            if _get(runner, _RUNNER_LEADER) is leader and not _get(runner, _RUNNER_IS_OFFLINE):
                self._note_fetch(runner, leader, <tuple>wanted)
        correlation_id = <int32_t>read_number(frame + _CORRELATION_ID_AT, 4)
        if not self._may_serve():
            # Those whom this has woken were faster, perhaps on another connection of this session.
            header = self._header._replace(correlation_id=correlation_id)
            return self._handler.start(
                self._connection, header, self._request, self._interest, False
            )
        cdef FetchWait waiting = self._wait(correlation_id)
        return waiting.start(named)

    cdef int _note_fetch(self, runner, leader, tuple wanted) except -1:
        """As `PartitionRunner.on_follower_fetch`."""
        effects = leader.on_follower_fetch(
            self._replica,
            broker_epoch=self._replica_epoch,
            fetch_offset=wanted[2],
            log_start_offset=wanted[4],
            now_ms=_get(runner, _RUNNER_CLOCK).now_ms(),
        )
        if effects is ADVANCED:
            runner._on_high_watermark_advanced()
        elif effects:
            runner._perform(effects)
        if _get(runner, _RUNNER_DELETIONS):
            runner._wake_deletions()
        return 0

    cdef bint _is_of_our_form(self, uint8_t *frame, Py_ssize_t at, Py_ssize_t end):
        # At least an epoch and the number of topics.
        return (
            at + _EPOCH_BYTES < end
            and memcmp(frame, PyBytes_AS_STRING(self._start), 4) == 0
            and memcmp(frame + _COMMON_AT, PyBytes_AS_STRING(self._common), at - _COMMON_AT) == 0
            and memcmp(frame + end, PyBytes_AS_STRING(self._end), PyBytes_GET_SIZE(self._end)) == 0
        )

    cdef bint _may_serve(self) except -1:
        """Whether the session is alive and idle, and nothing holds back what followers get."""
        interest = self._interest
        return (
            (<dict>self._interests).get(self._session_id) is interest
            and _get(interest, _INTEREST_ATTEMPT) is None
            and not _get(self._session, _SESSION_IS_FULL)
            and not self._throttle.is_active
            and not self._reader.is_rack_aware
            and not _is_exhausted(self._answer_memory)
        )

    cdef list _named(self, uint8_t *frame, Py_ssize_t at, Py_ssize_t end):
        """The partitions of the request, each with its runner; None if one is not as it should be.

        Anything that a follower must be told is for Python to tell it.
        """
        cdef int topic_count, partition_count
        cdef list named = []
        seen = set()
        if frame[at] == 0 or frame[at] & 0x80:
            return None
        topic_count = frame[at] - 1
        at += 1
        for _ in range(topic_count):
            if at + _TOPIC_ID_BYTES + 1 > end:
                return None
            topic_id = PyBytes_FromStringAndSize(<char *>frame + at, _TOPIC_ID_BYTES)
            targets = (<dict>_get(self._session, _SESSION_TOPICS)).get(topic_id)
            topic = (<dict>self._partitions._names).get(topic_id)
            at += _TOPIC_ID_BYTES
            if targets is None or topic is None or frame[at] == 0 or frame[at] & 0x80:
                return None
            partition_count = frame[at] - 1
            at += 1
            for _ in range(partition_count):
                if at + _WANTED_BYTES + 1 > end or frame[at + _WANTED_BYTES] != 0:
                    return None
                found = self._found(frame + at, <dict>targets, topic)
                if found is None or found[0] in seen or len(named) == _NAMED_MAX:
                    return None
                seen.add(found[0])
                named.append(found)
                at += _WANTED_BYTES + 1
            if at + 1 > end or frame[at] != 0:
                return None
            at += 1
        return named if at == end else None

    cdef tuple _found(self, uint8_t *wanted, dict targets, str topic):
        cdef int64_t offset = <int64_t>read_number(wanted + 8, 8)
        partition = <int32_t>read_number(wanted, 4)
        target = targets.get(partition)
        if target is None:
            return None
        runner = self._led(topic, partition, <int32_t>read_number(wanted + 4, 4))
        if runner is None:
            return None
        leader = _get(runner, _RUNNER_LEADER)
        log = _get(runner, _RUNNER_LOG)
        epochs = _get(runner, _RUNNER_EPOCHS)
        if type(log) is not Log or type(epochs) is not EpochHistory:
            return None
        last_epoch = <int32_t>read_number(wanted + 16, 4)
        if last_epoch < 0 or last_epoch != _number(epochs, _EPOCHS_LATEST):
            return None
        if not _number(log, _LOG_START_OFFSET) <= offset <= _number(leader, _LEADER_END_OFFSET):
            return None
        said = tuple.__new__(
            FetchPartition,
            (
                partition,
                <int32_t>read_number(wanted + 4, 4),
                offset,
                last_epoch,
                <int64_t>read_number(wanted + 20, 8),
                <int32_t>read_number(wanted + 28, 4),
            ),
        )
        return target, runner, leader, said

    cdef object _led(self, topic, partition, int64_t leader_epoch):
        """The runner of a partition that this broker leads and our follower may fetch, or None."""
        runner = (<dict>self._partitions._runners).get((topic, partition))
        if type(runner) is not PartitionRunner or _get(runner, _RUNNER_IS_OFFLINE):
            return None
        leader = _get(runner, _RUNNER_LEADER)
        if type(leader) is not PartitionLeader or _number(leader, _LEADER_EPOCH) != leader_epoch:
            return None
        if self._replica not in <dict>_get(leader, _LEADER_FOLLOWERS):
            return None
        if self._replica_epoch < leader.live_brokers.get(self._replica, self._replica_epoch):
            return None
        return runner

    cdef bint _is_at_the_end(self, list named) except -1:
        """Whether there is nothing to read, and so to wait. The session knows then as well."""
        session = self._session
        dirty = _get(session, _SESSION_DIRTY)
        if len(dirty) > len(named):
            return False
        news = []
        for target, runner, leader, wanted in named:
            log = _get(runner, _RUNNER_LOG)
            if _get(runner, _RUNNER_LEADER) is not leader or _get(runner, _RUNNER_IS_OFFLINE):
                return False
            if target not in dirty or (<tuple>wanted)[2] != _get(leader, _LEADER_END_OFFSET):
                return False
            offsets = _offsets(runner, leader, log)
            told = _get(target, _TARGET_TOLD)
            if told is None:
                return False
            if max((<tuple>told)[2], (<tuple>wanted)[4]) < _get(log, _LOG_START_OFFSET):
                return False
            if told == offsets:
                news.append(target)
        for target, runner, leader, wanted in named:
            self._watch(target, runner)
        _get(session, _SESSION_NOTED).clear()
        for target in news:
            del dirty[target]
        return True

    cdef int _watch(self, target, runner) except -1:
        interest = self._interest
        if (<dict>_get(interest, _INTEREST_WATCHED)).get(target) is not runner:
            interest.watch(target, runner)
        return 0

    # -- waiting -----------------------------------------------------------------------------------

    cdef FetchWait _wait(self, correlation_id):
        cdef FetchWait waiting = FetchWait.__new__(FetchWait)
        interest = self._interest
        waiting._form = self
        waiting._correlation_id = correlation_id
        self._waiting = waiting
        _set(interest, _INTEREST_ATTEMPT, waiting)
        _set(interest, _INTEREST_PARKED, waiting)
        # One timer for all requests of the session: most of them end long before their time.
        self._deadline_s = self._loop.time() + self._wait_s
        if self._timer is None:
            self._timer = self._loop.call_later(self._wait_s, self.on_time)
        return waiting

    def end(self):
        """Nobody will use it any more."""
        if self._timer is not None and self._waiting is None:
            self._timer.cancel()
            self._timer = None

    def on_time(self):
        """The time of a request may be up."""
        cdef FetchWait waiting = self._waiting
        self._timer = None
        if waiting is None or waiting._is_over:
            return
        cdef double rest_s = self._deadline_s - self._loop.time()
        if rest_s > 0:
            self._timer = self._loop.call_later(rest_s, self.on_time)
        else:
            waiting.hurry()


cdef class FetchWait:
    """A request that is parked: a `PendingAnswer`, a `FetchAttempt` and a `ParkedFetch` in one.

    Ends with what one read has appended. What is not that simple goes on in Python from here on,
    as if it had begun there (`_give_over`); this is only the place of its answer then.
    """

    cdef FastFetch _form
    cdef int32_t _correlation_id
    cdef bint _is_due
    cdef bint _is_over
    cdef bint _has_turn
    cdef object _on_abandoned
    cdef object _on_hurried
    cdef readonly list buffers
    cdef readonly Py_ssize_t size_bytes
    cdef public int64_t available_bytes

    exclusive = True
    gives_way = True

    @property
    def is_wanted(self):
        return not self._form._connection.is_closed

    # -- as a ParkedFetch --------------------------------------------------------------------------

    def on_news(self, int64_t appended_bytes):
        self._hear(appended_bytes)

    cdef int _hear(self, int64_t appended_bytes) except -1:
        self.available_bytes += appended_bytes
        if self._is_due or self._is_over:
            return 0
        if appended_bytes == 0 or self.available_bytes >= self._form._min_bytes:
            self._is_due = True
            after_read = self._form._after_read
            if type(after_read) is AfterRead and _get(after_read, _AFTER_READ_IS_READING):
                (<list>_get(after_read, _AFTER_READ_DUE)).append(self.look)
            else:
                after_read.call(self.look)
        return 0

    def cancel(self):
        self._end()

    def look(self):
        cdef list buffers
        self._is_due = False
        if self._is_over or not self._may_take_turn():
            return
        connection = self._form._connection
        try:
            buffers = self._look()
            if buffers is None:
                self._give_over(False, self._has_turn)
            else:
                self.complete(buffers)
        except Exception:
            with AtTheCostOf(connection, ApiKey.FETCH):
                raise

    # -- at first ----------------------------------------------------------------------------------

    cdef object start(self, list named):
        """The answer, if there is one already."""
        cdef FastFetch form = self._form
        if not self._may_take_turn():
            _set(form._interest, _INTEREST_PARKED, None)  # It will look in any case.
            return self
        cdef list buffers
        try:
            if form._is_at_the_end(named):
                return self
            buffers = self._look()
        except Exception:
            self._end()  # It has no place among the answers yet.
            raise
        if buffers is not None:
            return buffers  # Not bytes: it leaves before the next request is looked at.
        self._end()
        return form._handler.start(
            form._connection, self._header(), form._request, form._interest, self._has_turn
        )

    cdef bint _may_take_turn(self) except -1:
        """Whether to look now; if not, we are called when it is our turn."""
        self._has_turn = False
        if not _get(self._form._interest, _INTEREST_IS_HEAVY):
            return True
        self._has_turn = self._form._turns.take_or_wait(self.look)
        return self._has_turn

    # -- as a FetchAttempt -------------------------------------------------------------------------

    def give_way(self):
        """Another request of the session has come, or the session has ended."""
        self._end()
        # Not now: somebody is in the middle of something, perhaps on this very connection.
        self._form._loop.call_soon(self.answer_nothing)

    def answer_nothing(self):
        cdef FastFetch form = self._form
        with AtTheCostOf(form._connection, ApiKey.FETCH):
            if self.is_wanted and self.buffers is None:
                self.complete(form._handler.encode_nothing(self._header(), form._session_id))

    # -- as a PendingAnswer ------------------------------------------------------------------------

    def on_abandoned(self, callback):
        self._on_abandoned = callback

    def on_hurried(self, callback):
        self._on_hurried = callback

    def complete(self, list buffers):
        assert self.buffers is None
        self.buffers = buffers
        self.size_bytes = sum(map(len, buffers))
        self._on_abandoned = self._on_hurried = None
        connection = self._form._connection
        if len(buffers) == 1 and type(buffers[0]) is bytes:
            if _send_only(connection, self, buffers[0]):
                return
        connection.answer_ready(self.size_bytes)

    def hurry(self):
        callback, self._on_hurried = self._on_hurried, None
        if callback is not None:
            callback()
        elif not self._is_over:
            self._give_over(True, False)

    def abandon(self):
        callback, self._on_abandoned = self._on_abandoned, None
        if callback is not None:
            callback()
        elif not self._is_over:
            self._end()

    # -- within ------------------------------------------------------------------------------------

    cdef object _header(self):
        return self._form._header._replace(correlation_id=self._correlation_id)

    cdef int _end(self) except -1:
        """It is nobody's attempt any more."""
        cdef FastFetch form = self._form
        interest = form._interest
        self._is_over = True
        if form._waiting is self:
            form._waiting = None
        if _get(interest, _INTEREST_ATTEMPT) is self:
            _set(interest, _INTEREST_ATTEMPT, None)
            _set(interest, _INTEREST_PARKED, None)
        return 0

    cdef int _give_over(self, bint is_expired, bint has_turn) except -1:
        cdef FastFetch form = self._form
        self._end()
        form._handler.take_over(
            form._connection,
            self._header(),
            form._request,
            form._interest,
            self,
            is_expired=is_expired,
            has_turn=has_turn,
            wait_s=max(0.0, form._deadline_s - form._loop.time()),
        )
        return 0

    cdef list _look(self):
        """The answer; None if Python has to look."""
        cdef FastFetch form = self._form
        cdef int64_t size_bytes = 0
        session = form._session
        if _get(session, _SESSION_IS_FULL) or form._throttle.is_active:
            return None
        if form._reader.is_rack_aware or _is_exhausted(form._answer_memory):
            return None
        cdef int64_t max_bytes = min(
            form._request.max_bytes,
            form._reader.fetch_max_bytes,
            form._answer_memory.available_bytes,
        )
        dirty = _get(session, _SESSION_DIRTY)
        if len(dirty) > _NAMED_MAX:
            return None
        cdef list found = []
        for target in dirty:
            if size_bytes >= max_bytes > 0:
                break  # They stay dirty and come first in the next answer.
            part = self._part(target, max_bytes - size_bytes, size_bytes == 0)
            if part is None:
                return None
            size_bytes += len((<tuple>part)[3])
            found.append(part)
        if size_bytes < form._min_bytes:
            return None
        self._end()
        self._note_heaviness(size_bytes >= _HEAVY_BYTES)
        _get(session, _SESSION_NOTED).clear()
        for target, told, is_news, data, is_left_out in found:
            if is_news:
                _set(target, _TARGET_TOLD, told)
            elif not is_left_out:
                del dirty[target]
            if len(data):
                dirty.move_to_end(target)
        return _buffers_of(self._correlation_id, form._session_id, found, size_bytes)

    cdef int _note_heaviness(self, bint is_heavy) except -1:
        interest = self._form._interest
        if is_heavy and not _get(interest, _INTEREST_IS_HEAVY):
            self._form._turns.take()
        _set(interest, _INTEREST_IS_HEAVY, is_heavy)
        return 0

    cdef tuple _part(self, target, int64_t room_bytes, bint at_least_one):
        """What there is to say of one partition; None if that is not as simple."""
        cdef FastFetch form = self._form
        cdef int64_t offset, end_offset
        wanted = <tuple>_get(target, _TARGET_WANTED)
        topic_id = _get(target, _TARGET_TOPIC_ID)
        runner = form._led(
            (<dict>form._partitions._names).get(topic_id), wanted[0], wanted[1]
        )
        if runner is None:
            return None
        form._watch(target, runner)
        leader = _get(runner, _RUNNER_LEADER)
        log = _get(runner, _RUNNER_LOG)
        epochs = _get(runner, _RUNNER_EPOCHS)
        if type(log) is not Log or type(epochs) is not EpochHistory or log.has_aborted:
            return None
        told = _get(target, _TARGET_TOLD)
        if told is None or wanted[3] < 0 or wanted[3] != _get(epochs, _EPOCHS_LATEST):
            return None
        offset = wanted[2]
        end_offset = _number(leader, _LEADER_END_OFFSET)
        if not _number(log, _LOG_START_OFFSET) <= offset <= end_offset:
            return None
        if not leader.has_fetched(form._replica):
            return None
        data = b""
        if offset < end_offset:
            if end_offset != _number(log, _LOG_END_OFFSET):
                return None  # The rest is on its way to the disk.
            data = _read_on(log, offset, max(0, min(room_bytes, wanted[5])), at_least_one)
            if data is None:
                return None
        offsets = _offsets(runner, leader, log)
        is_news = len(data) > 0 or offsets != told
        return target, offsets, is_news, data, offset < end_offset and len(data) == 0


cdef object _read_on(log, int64_t offset, int64_t room_bytes, bint at_least_one):
    """Whole batches from `offset` on, as `Log.read_cached` reads them from the active segment.

    None if they have to be looked for, nothing if there is no room for the first.
    """
    segment = _get(log, _LOG_ACTIVE)
    recent = <list>_get(log, _LOG_RECENT)
    place = recent[offset % _RECENT_PLACES]
    if place is None or type(segment) is not Segment:
        return None
    if <int64_t>(<tuple>place)[0] != offset or (<tuple>place)[1] is not segment:
        return None
    cdef int64_t position = (<tuple>place)[2]
    cdef int64_t limit = _number(segment, _SEGMENT_KNOWN_SIZE_BYTES)
    cdef int64_t size_bytes = limit - position
    cdef int64_t end = 0, end_offset = 0, batch_bytes
    cdef bytes data
    cdef uint8_t *start
    file = _get(segment, _SEGMENT_FILE)
    if size_bytes < _HEADER_BYTES:
        return None
    if size_bytes <= room_bytes:
        data = _remembered(log, segment, position, size_bytes)
        if data is None:
            data = _read_from_cache(file, position, size_bytes)
        if data is None or not _is_batch(PyBytes_AS_STRING(data), size_bytes):
            return None
        last = _get(log, _LOG_END_OFFSET)
        recent[last % _RECENT_PLACES] = (last, segment, limit)
        return data
    data = _read_from_cache(file, position, _HEADER_BYTES)
    if data is None:
        return None
    start = <uint8_t *>PyBytes_AS_STRING(data)
    batch_bytes = <int64_t><int32_t>read_number(start + 8, 4) + _OVERHEAD_BYTES
    if start[16] != _MAGIC or batch_bytes < _HEADER_BYTES or batch_bytes > size_bytes:
        return None
    if batch_bytes > room_bytes:
        if not at_least_one:
            return b""
        room_bytes = batch_bytes
    data = _read_from_cache(file, position, room_bytes)
    if data is None:
        return None
    start = <uint8_t *>PyBytes_AS_STRING(data)
    while room_bytes - end >= _HEADER_BYTES:
        batch_bytes = <int64_t><int32_t>read_number(start + end + 8, 4) + _OVERHEAD_BYTES
        if start[end + 16] != _MAGIC or batch_bytes < _HEADER_BYTES:
            return None
        if batch_bytes > room_bytes - end:
            break
        end_offset = (
            <int64_t>read_number(start + end, 8) + <int32_t>read_number(start + end + 23, 4) + 1
        )
        end += batch_bytes
    if room_bytes - end >= _WALK_BYTES:
        batch_bytes = <int64_t><int32_t>read_number(start + end + 8, 4) + _OVERHEAD_BYTES
        if start[end + 16] != _MAGIC or batch_bytes < _HEADER_BYTES:
            return None
        end_offset = <int64_t>read_number(start + end, 8)
    recent[end_offset % _RECENT_PLACES] = (end_offset, segment, position + end)
    return data if end == room_bytes else memoryview(data)[:end]


cdef bint _is_batch(char *start, int64_t size_bytes):
    cdef uint8_t *at = <uint8_t *>start
    cdef int64_t batch_bytes = <int64_t><int32_t>read_number(at + 8, 4) + _OVERHEAD_BYTES
    return at[16] == _MAGIC and _HEADER_BYTES <= batch_bytes <= size_bytes


cdef bytes _read_from_cache(file, int64_t position, int64_t size_bytes):
    cdef bytes data
    cdef int flags
    if type(file) is not RealLogFile:
        read = file.read_cached(position, size_bytes)
        return bytes(read) if read is not None and len(read) == size_bytes else None
    flags = _number(file, _FILE_NOWAIT)
    if flags == 0:
        return None
    data = PyBytes_FromStringAndSize(NULL, size_bytes)
    if read_at(
        _number(file, _FILE_DESCRIPTOR), PyBytes_AS_STRING(data), size_bytes, position, flags
    ) != size_bytes:
        return None  # It would have to wait, or the disk is broken: Python finds out.
    return data


cdef object _offsets(runner, leader, log):
    high_watermark = _get(leader, _LEADER_HIGH_WATERMARK)
    log_start = _get(log, _LOG_START_OFFSET)
    stable = _get(runner, _RUNNER_PRODUCERS).last_stable_offset(high_watermark)
    return tuple.__new__(KnownOffsets, (high_watermark, max(log_start, stable), log_start))


cdef list _buffers_of(int32_t correlation_id, session_id, list found, Py_ssize_t data_bytes):
    """The whole answer, of a version with topic ids; in one piece unless it is large."""
    cdef bint is_copied = data_bytes <= _COPIED_MAX
    cdef Py_ssize_t size_bytes = 4 + 4 + 1 + 4 + 2 + 4 + 1 + 1
    cdef list news = [each for each in found if (<tuple>each)[2]]
    before = None
    for target, told, _, data, _ in news:
        if target.topic_id != before:
            size_bytes += _TOPIC_ID_BYTES + 1 + 1
            before = target.topic_id
        size_bytes += _RESULT_BYTES + _length_bytes(len(data) + 1) + 1
    cdef bytes answer = PyBytes_FromStringAndSize(
        NULL, size_bytes + data_bytes if is_copied else size_bytes
    )
    cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(answer)
    cdef uint8_t *at = start + 20
    cdef uint8_t *count = NULL
    cdef list buffers = []
    cdef Py_ssize_t cut = 0
    write_number(start, 4, size_bytes + data_bytes - 4)
    write_number(start + 4, 4, <uint64_t>correlation_id)
    # No tagged fields of the header, no throttling, no error.
    memset(start + 8, 0, 1 + 4 + 2)
    write_number(start + 15, 4, <uint64_t><int64_t>session_id)
    start[19] = 1  # One more than there are topics, here and below partitions.
    before = None
    for target, told, _, data, _ in news:
        if target.topic_id != before:
            if count is not NULL:
                at[0] = 0  # No tagged fields of the topic.
                at += 1
            before = target.topic_id
            start[19] += 1
            memcpy(at, PyBytes_AS_STRING(<bytes>before), _TOPIC_ID_BYTES)
            count = at + _TOPIC_ID_BYTES
            count[0] = 1
            at = count + 1
        count[0] += 1
        write_number(at, 4, <uint64_t><int64_t>(<tuple>target.wanted)[0])
        memset(at + 4, 0, 2)
        write_number(at + 6, 8, <uint64_t><int64_t>(<tuple>told)[0])
        write_number(at + 14, 8, <uint64_t><int64_t>(<tuple>told)[1])
        write_number(at + 22, 8, <uint64_t><int64_t>(<tuple>told)[2])
        at[30] = 0  # Null for aborted transactions.
        memset(at + 31, 0xFF, 4)  # No preferred replica.
        at = _write_length(at + _RESULT_BYTES, len(data) + 1)
        if is_copied:
            copied = bytes(data)
            memcpy(at, PyBytes_AS_STRING(copied), PyBytes_GET_SIZE(copied))
            at += PyBytes_GET_SIZE(copied)
        elif len(data):
            buffers.append((cut, at - start, data))
            cut = at - start
        at[0] = 0  # No tagged fields of the partition.
        at += 1
    if count is not NULL:
        at[0] = 0
        at += 1
    at[0] = 0
    assert at + 1 == start + PyBytes_GET_SIZE(answer)
    if is_copied:
        return [answer]
    parts = []
    for begin, end, data in buffers:
        parts.append(answer[begin:end])
        parts.append(data)
    parts.append(answer[cut:])
    return parts


cdef int _length_bytes(uint64_t length):
    cdef int size_bytes = 1
    while length >= 0x80:
        length >>= 7
        size_bytes += 1
    return size_bytes


cdef uint8_t *_write_length(uint8_t *at, uint64_t length):
    while length >= 0x80:
        at[0] = <uint8_t>(length & 0x7F) | 0x80
        length >>= 7
        at += 1
    at[0] = <uint8_t>length
    return at + 1

# -- reading ---------------------------------------------------------------------------------------


class FastProtocol(BufferedProtocol):
    """Hands a read that is one request for a shortcut to that, and all others to the connection."""

    __slots__ = ("_after_read", "_connection", "_gate", "_memory", "_owner", "_shared")

    def __init__(self, connection, owner):
        self._connection = connection
        self._owner = owner
        self._shared = owner.shared_buffer
        self._after_read = owner.after_read
        if type(self._after_read) is not AfterRead:
            raise TypeError("not what reads leave to be done")  # Its slots are found by place.
        self._memory = owner.request_memory
        self._gate = owner.gate

    def connection_made(self, transport):
        self._connection.connection_made(transport)

    def connection_lost(self, exc):
        self._connection.connection_lost(exc)

    def eof_received(self):
        return self._connection.eof_received()

    def pause_writing(self):
        self._connection.pause_writing()

    def resume_writing(self):
        self._connection.resume_writing()

    def get_buffer(self, sizehint):
        connection = self._connection
        if _get(connection, _CONNECTION_OWN) is None:
            return self._shared
        return connection.get_buffer(sizehint)

    def buffer_updated(self, Py_ssize_t nbytes):
        connection = self._connection
        if not self._is_one_request(connection, nbytes):
            connection.buffer_updated(nbytes)
            return
        after_read = self._after_read
        _set(after_read, _AFTER_READ_IS_READING, True)
        _set(after_read, _AFTER_READ_HAS_ONE, True)
        _set(connection, _CONNECTION_HANDLING, True)
        cdef Py_ssize_t answered_bytes = 1
        try:
            answer = _get(connection, _CONNECTION_SHORTCUT).answer(self._shared, 4, nbytes)
            _set(connection, _CONNECTION_HANDLING, False)
            if answer is None:
                # As if it had not been tried: nothing has changed.
                connection.buffer_updated(nbytes)
                return
            if type(answer) is bytes:
                connection.send_one(answer)
                answered_bytes = PyBytes_GET_SIZE(<bytes>answer)
            elif type(answer) is not list and answer.buffers is None:
                _get(connection, _CONNECTION_ANSWERS).append(answer)
                _set(connection, _CONNECTION_EXCLUSIVE, answer.exclusive)
            else:
                answered_bytes = connection.take_only(answer)
        except WireError as error:
            connection.refuse(str(error))
        finally:
            _set(connection, _CONNECTION_HANDLING, False)
            _set(after_read, _AFTER_READ_IS_READING, False)
            if _get(after_read, _AFTER_READ_DUE):
                after_read.do()
            _set(after_read, _AFTER_READ_HAS_ONE, False)
        # After the answer: this client has it while we keep our books.
        if _get(connection, _CONNECTION_LAST_USED_MS) != self._owner.now_ms:
            self._owner.touched(connection)
        cdef int64_t budget_bytes = _number(connection, _CONNECTION_BUDGET_BYTES)
        _set(connection, _CONNECTION_BUDGET_BYTES, budget_bytes - nbytes - answered_bytes)
        if budget_bytes <= nbytes + answered_bytes:
            connection.end_turn()

    def _is_one_request(self, connection, Py_ssize_t nbytes):
        """As in `Connection._handle_only_frame`, and there is a shortcut."""
        cdef Py_buffer held
        cdef int64_t size_bytes
        if not 4 < nbytes < _HEAVY_BYTES or nbytes > self._owner.request_max_bytes:
            return False
        if _get(connection, _CONNECTION_SHORTCUT) is None or _get(connection, _CONNECTION_CLOSING):
            return False
        if _get(connection, _CONNECTION_OWN) is not None or _get(connection, _CONNECTION_ANSWERS):
            return False
        if _get(connection, _CONNECTION_WRITE_PAUSED) or _get(connection, _CONNECTION_FINISHING):
            return False
        PyObject_GetBuffer(self._shared, &held, PyBUF_SIMPLE)
        size_bytes = <int32_t>read_number(<uint8_t *>held.buf, 4)
        PyBuffer_Release(&held)
        return size_bytes == nbytes - 4 and not _is_exhausted(self._memory) and self._gate.is_open()

# -- columns -----------------------------------------------------------------------------------------

# Grows by doubling; whoever takes it frees it.
cdef struct Grown:
    uint8_t *data
    size_t size
    size_t capacity


cdef inline bint _reserve(Grown *grown, size_t more) noexcept nogil:
    cdef size_t capacity = grown.capacity
    cdef uint8_t *data
    if grown.size + more <= capacity:
        return True
    if capacity < 4096:
        capacity = 4096
    while capacity < grown.size + more:
        capacity *= 2
    data = <uint8_t *>realloc(grown.data, capacity)
    if data == NULL:
        return False
    grown.data = data
    grown.capacity = capacity
    return True


cdef inline bint _put(Grown *grown, const void *data, size_t size) noexcept nogil:
    if not _reserve(grown, size):
        return False
    memcpy(grown.data + grown.size, data, size)
    grown.size += size
    return True


# A column of bytes that may be null, as Arrow has it: where each ends, which are there, and all of them.
cdef struct Variable:
    Grown ends
    Grown validity
    Grown data
    int64_t count
    int64_t null_count


cdef inline bint _begin(Variable *column) noexcept nogil:
    cdef int32_t zero = 0
    return _put(&column.ends, &zero, 4)


cdef inline void _free(Variable *column) noexcept nogil:
    free(column.ends.data)
    free(column.validity.data)
    free(column.data.data)


cdef inline bint _note_valid(Grown *validity, int64_t row, bint is_valid) noexcept nogil:
    cdef uint8_t empty = 0
    if row & 7 == 0 and not _put(validity, &empty, 1):
        return False
    if is_valid:
        validity.data[row >> 3] |= <uint8_t>(1 << (row & 7))
    return True


cdef inline bint _put_bytes(Variable *column, const uint8_t *data, int64_t size_bytes) noexcept nogil:
    """`size_bytes` -1 is null."""
    cdef int32_t end
    if not _note_valid(&column.validity, column.count, size_bytes >= 0):
        return False
    if size_bytes < 0:
        column.null_count += 1
    elif size_bytes > 0:
        if column.data.size + size_bytes > 0x7FFFFFFF or not _put(&column.data, data, size_bytes):
            return False
    end = <int32_t>column.data.size
    column.count += 1
    return _put(&column.ends, &end, 4)


cdef int64_t _TIMESTAMP_MS_MAX = 0x7FFFFFFFFFFFFFFF // 1000


cdef inline int64_t _microseconds(int64_t timestamp_ms) noexcept nogil:
    if timestamp_ms > _TIMESTAMP_MS_MAX:
        return _TIMESTAMP_MS_MAX * 1000
    if timestamp_ms < -_TIMESTAMP_MS_MAX:
        return -_TIMESTAMP_MS_MAX * 1000
    return timestamp_ms * 1000


cdef class Memory:
    """Bytes that were grown, and are freed with this."""

    cdef uint8_t *data
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 0, flags)


cdef Memory _given(Grown *grown):
    cdef Memory memory = Memory.__new__(Memory)
    # Of an empty buffer too, something can be pointed at.
    if grown.data == NULL and not _reserve(grown, 1):
        raise MemoryError
    memory.data = grown.data
    memory.size = grown.size
    grown.data = NULL
    grown.size = grown.capacity = 0
    return memory


cdef tuple _given_variable(Variable *column):
    cdef int64_t null_count = column.null_count
    validity = _given(&column.validity)
    given = (_given(&column.ends), validity if null_count else None, _given(&column.data), null_count)
    column.count = column.null_count = 0
    return given


cdef class ColumnBuilder:
    """See records/columns.py."""

    cdef Grown offsets
    cdef Grown timestamps
    cdef Grown timestamp_types
    cdef Variable keys
    cdef Variable values
    cdef Grown header_ends
    cdef Grown header_validity
    cdef Variable header_keys
    cdef Variable header_values
    cdef readonly Py_ssize_t row_count
    cdef int64_t header_null_count
    cdef readonly bint has_headers

    def __cinit__(self, bint has_headers):
        self.has_headers = has_headers
        self._start()

    def __dealloc__(self):
        _free(&self.keys)
        _free(&self.values)
        _free(&self.header_keys)
        _free(&self.header_values)
        free(self.offsets.data)
        free(self.timestamps.data)
        free(self.timestamp_types.data)
        free(self.header_ends.data)
        free(self.header_validity.data)

    cdef _start(self):
        cdef int32_t zero = 0
        self.row_count = 0
        self.header_null_count = 0
        if not (
            _begin(&self.keys)
            and _begin(&self.values)
            and _begin(&self.header_keys)
            and _begin(&self.header_values)
            and _put(&self.header_ends, &zero, 4)
        ):
            raise MemoryError

    @property
    def size_bytes(self):
        return self.keys.data.size + self.values.data.size + self.header_keys.data.size + self.header_values.data.size

    def add(
        self,
        payload,
        Py_ssize_t record_count,
        int64_t base_offset,
        int64_t base_timestamp_ms,
        int64_t append_timestamp_ms,
        bint is_log_append_time,
        int64_t start_offset,
        int64_t end_offset,
    ):
        cdef Py_buffer held
        cdef Cursor cursor
        cdef Parsed parsed
        cdef Py_ssize_t number
        cdef int64_t offset, timestamp_us
        cdef int32_t timestamp_type = is_log_append_time
        cdef bint is_sound = True
        cdef bint is_room = True
        PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
        try:
            if record_count < 0 or record_count > held.len:
                raise CorruptBatch(f"{record_count} records in {held.len} bytes")
            cursor.at = <const uint8_t *>held.buf
            cursor.end = cursor.at + held.len
            cursor.is_bad = False
            with nogil:
                for number in range(record_count):
                    if not _parse(&cursor, &parsed, NULL, 0):
                        is_sound = False
                        break
                    offset = <int64_t>(<uint64_t>base_offset + <uint64_t>parsed.offset_delta)
                    if offset < start_offset or offset >= end_offset:
                        continue
                    timestamp_us = _microseconds(
                        append_timestamp_ms
                        if is_log_append_time
                        else <int64_t>(<uint64_t>base_timestamp_ms + <uint64_t>parsed.timestamp_delta)
                    )
                    is_room = (
                        _put(&self.offsets, &offset, 8)
                        and _put(&self.timestamps, &timestamp_us, 8)
                        and _put(&self.timestamp_types, &timestamp_type, 4)
                        and _put_bytes(&self.keys, parsed.key, parsed.key_bytes)
                        and _put_bytes(&self.values, parsed.value, parsed.value_bytes)
                        and (not self.has_headers or self._put_headers(&parsed))
                    )
                    if not is_room:
                        break
                    self.row_count += 1
            if not is_room:
                raise MemoryError("a column of records has more than two gigabytes")
            if not is_sound or cursor.at != cursor.end:
                raise CorruptBatch("records cannot be read")
        finally:
            PyBuffer_Release(&held)

    cdef bint _put_headers(self, Parsed *parsed) noexcept nogil:
        """Of a record that was parsed, and so is sound."""
        cdef Cursor cursor
        cdef int64_t header_count, size_bytes
        cdef int32_t end
        cursor.at = parsed.value + (parsed.value_bytes if parsed.value_bytes > 0 else 0)
        cursor.end = parsed.end
        cursor.is_bad = False
        header_count = _varint(&cursor, 31)
        if not _note_valid(&self.header_validity, self.row_count, header_count > 0):
            return False
        if header_count == 0:
            self.header_null_count += 1
        while header_count > 0:
            header_count -= 1
            size_bytes = _field(&cursor, parsed.end)
            if not _put_bytes(&self.header_keys, cursor.at, size_bytes):
                return False
            cursor.at += size_bytes
            size_bytes = _field(&cursor, parsed.end)
            if not _put_bytes(&self.header_values, cursor.at, size_bytes):
                return False
            if size_bytes > 0:
                cursor.at += size_bytes
        end = <int32_t>self.header_keys.count
        return _put(&self.header_ends, &end, 4)

    def take(self):
        """What was gathered, as records/columns.py lists it; begins anew."""
        row_count = self.row_count
        headers = None
        if self.has_headers:
            null_count = self.header_null_count
            validity = _given(&self.header_validity)
            headers = (
                _given(&self.header_ends),
                validity if null_count else None,
                null_count,
                _given_variable(&self.header_keys),
                _given_variable(&self.header_values),
            )
        else:
            self.header_ends.size = self.header_keys.ends.size = self.header_values.ends.size = 0
        taken = (
            row_count,
            _given(&self.offsets),
            _given(&self.timestamps),
            _given(&self.timestamp_types),
            _given_variable(&self.keys),
            _given_variable(&self.values),
            headers,
        )
        self._start()
        return taken

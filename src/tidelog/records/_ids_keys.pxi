# -- keys of compacted logs --------------------------------------------------------------------------

cdef Py_ssize_t _SLOT_WORDS = 3


# Of one record, what compaction asks. `key_bytes` -1: it has no key.
cdef struct Keyed:
    const uint8_t *start
    const uint8_t *end
    int64_t timestamp_delta
    int64_t offset_delta
    const uint8_t *key
    int64_t key_bytes
    bint has_value


cdef bint _parse_keyed(Cursor *cursor, Keyed *record) noexcept nogil:
    """One record up to the length of its value; the cursor is then behind it."""
    cdef int64_t length
    record.start = cursor.at
    length = _varint(cursor, 31)
    if cursor.is_bad or length < 1 or length > cursor.end - cursor.at:
        return False
    record.end = cursor.at + length
    cursor.at += 1
    record.timestamp_delta = _varint(cursor, 63)
    record.offset_delta = _varint(cursor, 31)
    if cursor.is_bad or cursor.at > record.end:
        return False
    record.key_bytes = _field(cursor, record.end)
    if cursor.is_bad:
        return False
    record.key = cursor.at
    if record.key_bytes > 0:
        cursor.at += record.key_bytes
    record.has_value = _varint(cursor, 31) >= 0
    if cursor.is_bad or cursor.at > record.end:
        return False
    cursor.at = record.end
    return True


cdef class KeyTable:
    """See storage/key_offsets.py.

    A slot is three words: both halves of a key's hash, the first of which is never 0, and its newest offset.
    """

    cdef HashKey _hash_key
    cdef uint64_t *_words
    cdef uint64_t _slots
    cdef readonly int64_t count
    cdef readonly int64_t keys_max
    cdef public int64_t latest_offset

    def __cinit__(self, Py_ssize_t slots, int64_t keys_max, bytes hash_key):
        assert 1 < slots and keys_max < slots
        self._hash_key = _hash_key(hash_key)
        self._words = <uint64_t *>calloc(slots * _SLOT_WORDS, sizeof(uint64_t))
        if self._words == NULL:
            raise MemoryError
        self._slots = slots
        self.keys_max = keys_max
        self.latest_offset = -1

    def __dealloc__(self):
        free(self._words)

    @property
    def is_full(self):
        return self.count >= self.keys_max

    @property
    def memory_bytes(self):
        return self._slots * _SLOT_WORDS * sizeof(uint64_t)

    cdef inline uint64_t *_find(self, const uint8_t *key, int64_t key_bytes, uint64_t *digest) noexcept nogil:
        """The slot of the key, or the free one where it belongs."""
        cdef uint64_t slot, step
        cdef uint64_t *words
        _siphash(&self._hash_key, key, key_bytes, digest)
        if digest[0] == 0:
            digest[0] = 1
        slot = digest[0] % self._slots
        step = 1 + digest[1] % (self._slots - 1)
        while True:
            words = self._words + slot * _SLOT_WORDS
            if words[0] == 0 or (words[0] == digest[0] and words[1] == digest[1]):
                return words
            slot += step
            if slot >= self._slots:
                slot -= self._slots

    cdef inline void _put(self, const uint8_t *key, int64_t key_bytes, int64_t offset) noexcept nogil:
        cdef uint64_t digest[2]
        cdef uint64_t *words = self._find(key, key_bytes, digest)
        if words[0] == 0:
            words[0] = digest[0]
            words[1] = digest[1]
            self.count += 1
        words[2] = <uint64_t>offset

    cdef inline int64_t _get(self, const uint8_t *key, int64_t key_bytes) noexcept nogil:
        cdef uint64_t digest[2]
        cdef uint64_t *words = self._find(key, key_bytes, digest)
        return <int64_t>words[2] if words[0] else -1

    def put(self, bytes key, int64_t offset):
        assert self.count < self.keys_max or self.get(key) >= 0
        self._put(<const uint8_t *>PyBytes_AS_STRING(key), len(key), offset)

    def get(self, bytes key):
        return self._get(<const uint8_t *>PyBytes_AS_STRING(key), len(key))

    def note(self, payload, Py_ssize_t record_count, int64_t base_offset, int64_t first_offset):
        cdef Py_buffer held
        cdef Cursor cursor
        cdef Keyed record
        cdef Py_ssize_t number
        cdef bint is_sound = True
        cdef bint is_room = True
        PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
        try:
            cursor.at = <const uint8_t *>held.buf
            cursor.end = cursor.at + held.len
            cursor.is_bad = False
            with nogil:
                for number in range(record_count):
                    if not _parse_keyed(&cursor, &record):
                        is_sound = False
                        break
                    if record.key_bytes < 0 or base_offset + record.offset_delta < first_offset:
                        continue
                    if self.count >= self.keys_max:
                        is_room = False
                        break
                    self._put(record.key, record.key_bytes, base_offset + record.offset_delta)
                    self.latest_offset = base_offset + record.offset_delta
            if not is_sound or (is_room and cursor.at != cursor.end):
                raise CorruptBatch("records cannot be read")
            return is_room
        finally:
            PyBuffer_Release(&held)

    def retained(self, payload, Py_ssize_t record_count, int64_t base_offset, bint keeps_tombstones):
        cdef Py_buffer held
        cdef Cursor cursor
        cdef Keyed record
        cdef Py_ssize_t number
        cdef bint is_sound = True
        cdef bint has_tombstones = False
        cdef int64_t kept_count = 0
        cdef int64_t kept_bytes = 0
        cdef int64_t largest = 0
        cdef int64_t offset
        cdef char *kept
        PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
        try:
            kept = <char *>malloc(held.len + 1)
            if kept == NULL:
                raise MemoryError
            try:
                cursor.at = <const uint8_t *>held.buf
                cursor.end = cursor.at + held.len
                cursor.is_bad = False
                with nogil:
                    for number in range(record_count):
                        if not _parse_keyed(&cursor, &record):
                            is_sound = False
                            break
                        offset = base_offset + record.offset_delta
                        if offset <= self.latest_offset:
                            if record.key_bytes < 0 or not (record.has_value or keeps_tombstones):
                                continue
                            if offset < self._get(record.key, record.key_bytes):
                                continue
                        memcpy(kept + kept_bytes, record.start, record.end - record.start)
                        kept_bytes += record.end - record.start
                        if kept_count == 0 or record.timestamp_delta > largest:
                            largest = record.timestamp_delta
                        if not record.has_value:
                            has_tombstones = True
                        kept_count += 1
                if not is_sound or cursor.at != cursor.end:
                    raise CorruptBatch("records cannot be read")
                return (
                    PyBytes_FromStringAndSize(kept, kept_bytes), kept_count, largest, has_tombstones
                )
            finally:
                free(kept)
        finally:
            PyBuffer_Release(&held)

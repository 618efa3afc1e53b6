# -- what need not be replayed -----------------------------------------------------------------------

cdef Py_ssize_t _FIRST_SLOTS = 1024
cdef Py_ssize_t _FIRST_FOUND = 256
cdef int64_t _HEADER_BYTES = 61
cdef int64_t _OVERHEAD_BYTES = 12
cdef int _CODEC_BITS = 0x07
cdef int _TRANSACTIONAL_BIT = 0x10
cdef int _CONTROL_BIT = 0x20

# How looking at the next batch, or at records, ended.
cdef int _SOUND = 1
cdef int _AT_END = 0
cdef int _CORRUPT = -1
cdef int _NO_MEMORY = -2

# How a transaction ended: what the type of a marker says.
cdef int _NO_END = -1
cdef int _ABORTED = 0
cdef int _COMMITTED = 1


# Of a batch, what its header says.
cdef struct Batch:
    int64_t size_bytes
    int64_t base_offset
    int64_t end_offset
    int attributes
    int64_t producer_id
    int producer_epoch
    int64_t record_count
    const uint8_t *payload


# A record that remains: where its key and its value are. A length of -1 is null.
cdef struct FoundRecord:
    const uint8_t *key
    int64_t key_bytes
    const uint8_t *value
    int64_t value_bytes


cdef inline uint64_t _big_endian(const uint8_t *at, int size_bytes) noexcept nogil:
    cdef uint64_t number = 0
    cdef int index
    for index in range(size_bytes):
        number = number << 8 | at[index]
    return number


cdef int _next_batch(const uint8_t *at, const uint8_t *end, Batch *batch) noexcept nogil:
    cdef int64_t length
    if end - at < _HEADER_BYTES:
        return _AT_END
    length = <int32_t>_big_endian(at + 8, 4)
    if length < _HEADER_BYTES - _OVERHEAD_BYTES or at[16] != 2:
        return _CORRUPT
    batch.size_bytes = length + _OVERHEAD_BYTES
    if end - at < batch.size_bytes:
        return _AT_END
    batch.base_offset = <int64_t>_big_endian(at, 8)
    batch.attributes = <int>_big_endian(at + 21, 2)
    batch.end_offset = batch.base_offset + <int32_t>_big_endian(at + 23, 4) + 1
    batch.producer_id = <int64_t>_big_endian(at + 43, 8)
    batch.producer_epoch = <int16_t>_big_endian(at + 51, 2)
    batch.record_count = <int32_t>_big_endian(at + 57, 4)
    batch.payload = at + _HEADER_BYTES
    return _SOUND


cdef class Superseded:
    """See records/superseded.py.

    A slot is three words: both halves of a key's hash, the first of which is never 0, and its newest offset. There are
    two slots for each key at least, and four at most once there are many.
    """

    cdef HashKey _hash_key
    cdef uint64_t *_words
    cdef uint64_t _slots
    cdef int64_t _count
    cdef int64_t _pending_count
    cdef int64_t _keys_max
    cdef uint64_t _kinds
    cdef uint64_t _kinds_in_transactions
    cdef FoundRecord *_found
    cdef Py_ssize_t _found_count
    cdef Py_ssize_t _found_room
    cdef dict _open
    cdef dict _ended
    cdef set _unfinished

    def __cinit__(self, kinds, kinds_in_transactions, bytes hash_key, int64_t keys_max):
        self._hash_key = _hash_key(hash_key)
        self._keys_max = keys_max
        self._slots = _FIRST_SLOTS
        self._words = <uint64_t *>calloc(_FIRST_SLOTS * _SLOT_WORDS, sizeof(uint64_t))
        self._found_room = _FIRST_FOUND
        self._found = <FoundRecord *>malloc(_FIRST_FOUND * sizeof(FoundRecord))
        if self._words == NULL or self._found == NULL:
            raise MemoryError
        self._kinds = _as_bits(kinds)
        self._kinds_in_transactions = _as_bits(kinds_in_transactions)
        self._open = {}
        self._ended = {}
        self._unfinished = set()

    def __dealloc__(self):
        free(self._words)
        free(self._found)

    # -- newest offsets ------------------------------------------------------------------------------

    cdef inline uint64_t *_slot(self, uint64_t *words, uint64_t slots, const uint64_t *digest) noexcept nogil:
        """The slot of a key, or the free one where it belongs. `slots` is a power of two."""
        cdef uint64_t slot = digest[1] & (slots - 1)
        cdef uint64_t *found
        while True:
            found = words + slot * _SLOT_WORDS
            if found[0] == 0 or (found[0] == digest[0] and found[1] == digest[1]):
                return found
            slot = (slot + 1) & (slots - 1)

    cdef inline uint64_t *_find(self, const uint8_t *key, int64_t key_bytes, uint64_t *digest) noexcept nogil:
        _siphash(&self._hash_key, key, key_bytes, digest)
        if digest[0] == 0:
            digest[0] = 1
        return self._slot(self._words, self._slots, digest)

    cdef inline bint _put(self, const uint8_t *key, int64_t key_bytes, int64_t offset) noexcept nogil:
        """Unless it has a newer one, or there are too many. False if there is no memory."""
        cdef uint64_t digest[2]
        cdef uint64_t *words = self._find(key, key_bytes, digest)
        if words[0] == 0:
            if not self._has_room():
                return True
            if 2 * (self._count + 1) > <int64_t>self._slots:
                if not self._grow():
                    return False
                words = self._slot(self._words, self._slots, digest)
            words[0] = digest[0]
            words[1] = digest[1]
            words[2] = <uint64_t>offset
            self._count += 1
        elif <int64_t>words[2] < offset:
            words[2] = <uint64_t>offset
        return True

    cdef inline bint _has_room(self) noexcept nogil:
        return self._count + self._pending_count < self._keys_max

    cdef bint _grow(self) noexcept nogil:
        cdef uint64_t slots = 2 * self._slots
        cdef uint64_t number
        cdef uint64_t *old
        cdef uint64_t *new
        cdef uint64_t *words = <uint64_t *>calloc(slots * _SLOT_WORDS, sizeof(uint64_t))
        if words == NULL:
            return False
        for number in range(self._slots):
            old = self._words + number * _SLOT_WORDS
            if old[0] != 0:
                new = self._slot(words, slots, old)
                new[0] = old[0]
                new[1] = old[1]
                new[2] = old[2]
        free(self._words)
        self._words = words
        self._slots = slots
        return True

    cdef inline int64_t _latest(self, const uint8_t *key, int64_t key_bytes) noexcept nogil:
        cdef uint64_t digest[2]
        cdef uint64_t *words = self._find(key, key_bytes, digest)
        return <int64_t>words[2] if words[0] else -1

    def spare(self, bytes key):
        cdef uint64_t digest[2]
        cdef uint64_t *words = self._find(<const uint8_t *>PyBytes_AS_STRING(key), len(key), digest)
        if words[0] != 0:
            words[2] = <uint64_t>-1

    # -- noting --------------------------------------------------------------------------------------

    def note(self, data, int64_t first_offset):
        cdef Py_buffer held, inner
        cdef Batch batch
        cdef const uint8_t *at
        cdef const uint8_t *end
        cdef int64_t end_offset = -1
        cdef int state
        PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
        try:
            at = <const uint8_t *>held.buf
            end = at + held.len
            while True:
                with nogil:
                    while True:
                        state = _next_batch(at, end, &batch)
                        if state != _SOUND or _is_special(&batch):
                            break
                        state = self._note_plain(&batch, batch.payload, at + batch.size_bytes, first_offset)
                        if state != _SOUND:
                            break
                        at += batch.size_bytes
                        end_offset = batch.end_offset
                if state == _AT_END:
                    return end_offset
                _require(state)
                if batch.attributes & _CONTROL_BIT:
                    if batch.end_offset > first_offset:
                        self._note_end(&batch, _end_of(held, at, &batch))
                elif batch.attributes & _CODEC_BITS:
                    unpacked = _unpacked(held, at, &batch)
                    PyObject_GetBuffer(unpacked, &inner, PyBUF_SIMPLE)
                    try:
                        batch.payload = <const uint8_t *>inner.buf
                        self._note_any(&batch, batch.payload + inner.len, first_offset)
                    finally:
                        PyBuffer_Release(&inner)
                else:
                    self._note_any(&batch, at + batch.size_bytes, first_offset)
                at += batch.size_bytes
                end_offset = batch.end_offset
        finally:
            PyBuffer_Release(&held)

    cdef int _note_plain(
        self, Batch *batch, const uint8_t *payload, const uint8_t *end, int64_t first_offset
    ) noexcept nogil:
        cdef Cursor cursor
        cdef Parsed record
        cdef int64_t number
        cursor.at = payload
        cursor.end = end
        cursor.is_bad = False
        for number in range(batch.record_count):
            if not _parse(&cursor, &record, NULL, 0):
                return _CORRUPT
            if batch.base_offset + record.offset_delta < first_offset or not _is_of(self._kinds, &record):
                continue
            if not self._put(record.key, record.key_bytes, batch.base_offset + record.offset_delta):
                return _NO_MEMORY
        return _SOUND if cursor.at == cursor.end else _CORRUPT

    cdef _note_any(self, Batch *batch, const uint8_t *end, int64_t first_offset):
        """What is, or was, compressed, or is in a transaction."""
        cdef Cursor cursor
        cdef Parsed record
        cdef int64_t number, offset
        cdef list pending = None
        if not batch.attributes & _TRANSACTIONAL_BIT:
            _require(self._note_plain(batch, batch.payload, end, first_offset))
            return
        cursor.at = batch.payload
        cursor.end = end
        cursor.is_bad = False
        for number in range(batch.record_count):
            if not _parse(&cursor, &record, NULL, 0):
                _require(_CORRUPT)
            offset = batch.base_offset + record.offset_delta
            if offset < first_offset:
                continue
            if not _is_of(self._kinds_in_transactions, &record) or not self._has_room():
                continue
            if pending is None:
                pending = self._open.get(batch.producer_id)
                if pending is None:
                    pending = self._open[batch.producer_id] = []
            pending.append((_as_bytes(record.key, record.key_bytes), offset))
            self._pending_count += 1
        if cursor.at != cursor.end:
            _require(_CORRUPT)

    cdef _note_end(self, Batch *batch, int end):
        cdef list pending
        if end == _NO_END:
            return
        if len(self._ended) < self._keys_max or batch.producer_id in self._ended:
            self._ended[batch.producer_id] = batch.end_offset - 1
        pending = self._open.pop(batch.producer_id, None)
        if pending is None:
            return
        self._pending_count -= len(pending)
        if end == _COMMITTED:
            for key, offset in pending:
                if not self._put(<const uint8_t *>PyBytes_AS_STRING(key), len(key), offset):
                    _require(_NO_MEMORY)

    # -- taking --------------------------------------------------------------------------------------

    def remaining(self, data, int64_t first_offset):
        cdef Py_buffer held, inner
        cdef Batch batch
        cdef const uint8_t *at
        cdef const uint8_t *end
        cdef int64_t end_offset = -1
        cdef int state
        cdef list remaining = []
        self._found_count = 0
        PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
        try:
            at = <const uint8_t *>held.buf
            end = at + held.len
            while True:
                with nogil:
                    while True:
                        state = _next_batch(at, end, &batch)
                        if state != _SOUND or _is_special(&batch):
                            break
                        state = self._find_plain(&batch, batch.payload, at + batch.size_bytes, first_offset)
                        if state != _SOUND:
                            break
                        at += batch.size_bytes
                        end_offset = batch.end_offset
                self._take_found(remaining)
                if state == _AT_END:
                    return remaining, end_offset
                _require(state)
                if batch.attributes & _CONTROL_BIT:
                    if batch.end_offset > first_offset:
                        self._take_end(&batch, _end_of(held, at, &batch), remaining)
                elif batch.attributes & _CODEC_BITS:
                    unpacked = _unpacked(held, at, &batch)
                    PyObject_GetBuffer(unpacked, &inner, PyBUF_SIMPLE)
                    try:
                        batch.payload = <const uint8_t *>inner.buf
                        self._take_any(&batch, batch.payload + inner.len, first_offset, remaining)
                    finally:
                        PyBuffer_Release(&inner)
                else:
                    self._take_any(&batch, at + batch.size_bytes, first_offset, remaining)
                at += batch.size_bytes
                end_offset = batch.end_offset
        finally:
            PyBuffer_Release(&held)

    cdef int _find_plain(
        self, Batch *batch, const uint8_t *payload, const uint8_t *end, int64_t first_offset
    ) noexcept nogil:
        cdef Cursor cursor
        cdef Parsed record
        cdef FoundRecord *found
        cdef int64_t number, offset
        cursor.at = payload
        cursor.end = end
        cursor.is_bad = False
        for number in range(batch.record_count):
            if not _parse(&cursor, &record, NULL, 0):
                return _CORRUPT
            offset = batch.base_offset + record.offset_delta
            if offset < first_offset or record.key_bytes < 0:
                continue
            if _is_of(self._kinds, &record) and self._latest(record.key, record.key_bytes) > offset:
                continue
            if self._found_count == self._found_room:
                found = <FoundRecord *>realloc(self._found, 2 * self._found_room * sizeof(FoundRecord))
                if found == NULL:
                    return _NO_MEMORY
                self._found = found
                self._found_room *= 2
            found = self._found + self._found_count
            found.key = record.key
            found.key_bytes = record.key_bytes
            found.value = record.value
            found.value_bytes = record.value_bytes
            self._found_count += 1
        return _SOUND if cursor.at == cursor.end else _CORRUPT

    cdef _take_found(self, list remaining):
        cdef Py_ssize_t number
        cdef FoundRecord *found
        for number in range(self._found_count):
            found = self._found + number
            remaining.append(
                (_as_bytes(found.key, found.key_bytes), _as_bytes(found.value, found.value_bytes), None, False)
            )
        self._found_count = 0

    cdef _take_any(self, Batch *batch, const uint8_t *end, int64_t first_offset, list remaining):
        cdef Cursor cursor
        cdef Parsed record
        cdef int64_t number, offset
        cdef int64_t ended
        if not batch.attributes & _TRANSACTIONAL_BIT:
            _require(self._find_plain(batch, batch.payload, end, first_offset))
            self._take_found(remaining)
            return
        ended = self._ended.get(batch.producer_id, -1)
        cursor.at = batch.payload
        cursor.end = end
        cursor.is_bad = False
        for number in range(batch.record_count):
            if not _parse(&cursor, &record, NULL, 0):
                _require(_CORRUPT)
            offset = batch.base_offset + record.offset_delta
            if offset < first_offset:
                continue
            if record.key_bytes < 0 or (
                offset <= ended
                and _is_of(self._kinds_in_transactions, &record)
                and self._latest(record.key, record.key_bytes) > offset
            ):
                continue
            self._unfinished.add(batch.producer_id)
            remaining.append(
                (
                    _as_bytes(record.key, record.key_bytes),
                    _as_bytes(record.value, record.value_bytes),
                    (batch.producer_id, batch.producer_epoch),
                    False,
                )
            )
        if cursor.at != cursor.end:
            _require(_CORRUPT)

    cdef _take_end(self, Batch *batch, int end, list remaining):
        if end == _NO_END or batch.producer_id not in self._unfinished:
            return
        self._unfinished.remove(batch.producer_id)
        remaining.append((None, None, (batch.producer_id, batch.producer_epoch), end == _COMMITTED))


cdef uint64_t _as_bits(kinds) except? 0:
    cdef uint64_t bits = 0
    for kind in kinds:
        assert 0 <= kind < 64
        bits |= <uint64_t>1 << <int>kind
    return bits


cdef inline bint _is_special(const Batch *batch) noexcept nogil:
    return batch.attributes & (_CODEC_BITS | _TRANSACTIONAL_BIT | _CONTROL_BIT) != 0


cdef inline bint _is_of(uint64_t kinds, const Parsed *record) noexcept nogil:
    """Has it a value, and a key of one of these kinds?"""
    return (
        record.value_bytes >= 0
        and record.key_bytes >= 2
        and record.key[0] == 0
        and record.key[1] < 64
        and (kinds >> record.key[1]) & 1
    )


cdef _view(Py_buffer held, const uint8_t *at, Batch *batch):
    cdef int64_t position = at - <const uint8_t *>held.buf
    return memoryview(<object>held.obj)[position : position + batch.size_bytes]


cdef _unpacked(Py_buffer held, const uint8_t *at, Batch *batch):
    """What follows the header, decompressed."""
    view = _view(held, at, batch)
    return uncompressed_payload(read_header(view, 0), view)


cdef inline _as_bytes(const uint8_t *at, int64_t size_bytes):
    return None if size_bytes < 0 else PyBytes_FromStringAndSize(<const char *>at, size_bytes)


cdef int _end_of(Py_buffer held, const uint8_t *at, Batch *batch) except -2:
    """How a transaction ended, if this control batch says so."""
    cdef Cursor cursor
    cdef Parsed record
    if not batch.attributes & _TRANSACTIONAL_BIT:
        return _NO_END
    if batch.record_count == 1 and not batch.attributes & _CODEC_BITS:
        cursor.at = batch.payload
        cursor.end = at + batch.size_bytes
        cursor.is_bad = False
        if (
            _parse(&cursor, &record, NULL, 0)
            and cursor.at == cursor.end
            and record.key_bytes >= 4
            and record.key[2] == 0
            and record.key[3] <= 1
            and record.value_bytes >= 6
        ):
            return record.key[3]
    # Not a marker as brokers write it.
    end = read_transaction_end(_view(held, at, batch))
    if end is None:
        return _NO_END
    return _COMMITTED if end.control_type is ControlType.COMMIT else _ABORTED


cdef int _require(int state) except -1:
    if state == _CORRUPT:
        raise CorruptBatch("records cannot be read")
    if state == _NO_MEMORY:
        raise MemoryError
    return 0

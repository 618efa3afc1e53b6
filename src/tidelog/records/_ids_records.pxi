# -- reading records ---------------------------------------------------------------------------------

cdef int _ENTRY = 20

# Bytes from outside: nothing is read beyond `end`, and no length is believed.
cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end
    bint is_bad


# Of one record, what its id and its place are read from. `start` is where its length stands; a length of -1 is null.
cdef struct Parsed:
    const uint8_t *start
    const uint8_t *end
    int64_t timestamp_delta
    int64_t offset_delta
    const uint8_t *key
    int64_t key_bytes
    const uint8_t *value
    int64_t value_bytes
    const uint8_t *id
    int64_t id_bytes


cdef inline int64_t _varint(Cursor *cursor, int bits_max) noexcept nogil:
    cdef uint64_t number = 0
    cdef uint64_t byte = 0x80
    cdef int shift = 0
    while byte & 0x80:
        if cursor.at >= cursor.end or shift > bits_max:
            cursor.is_bad = True
            return 0
        byte = cursor.at[0]
        cursor.at += 1
        if shift == 63 and byte > 1:
            cursor.is_bad = True
            return 0
        number |= (byte & 0x7F) << shift
        shift += 7
    if bits_max < 63 and number >> (bits_max + 1):
        cursor.is_bad = True
        return 0
    return <int64_t>(number >> 1) ^ -<int64_t>(number & 1)


cdef inline int64_t _field(Cursor *cursor, const uint8_t *record_end) noexcept nogil:
    """The length of what begins at the cursor; -1 for null. The caller steps over it."""
    cdef int64_t length = _varint(cursor, 31)
    if cursor.is_bad or length < -1 or (length >= 0 and length > record_end - cursor.at):
        cursor.is_bad = True
        return -1
    return length


cdef bint _parse(
    Cursor *cursor, Parsed *parsed, const uint8_t *name, int64_t name_bytes
) noexcept nogil:
    """One record; `name` NULL: its id is its key."""
    cdef int64_t length, header_count, key_bytes, value_bytes
    cdef const uint8_t *key
    parsed.start = cursor.at
    parsed.id = NULL
    parsed.id_bytes = 0
    length = _varint(cursor, 31)
    if cursor.is_bad or length < 0 or length > cursor.end - cursor.at:
        return False
    parsed.end = cursor.at + length
    if cursor.at >= cursor.end:
        return False
    cursor.at += 1
    parsed.timestamp_delta = _varint(cursor, 63)
    parsed.offset_delta = _varint(cursor, 31)
    if cursor.is_bad:
        return False
    key_bytes = _field(cursor, parsed.end)
    if cursor.is_bad:
        return False
    parsed.key = cursor.at
    parsed.key_bytes = key_bytes
    if key_bytes > 0:
        if name == NULL:
            parsed.id = cursor.at
            parsed.id_bytes = key_bytes
        cursor.at += key_bytes
    value_bytes = _field(cursor, parsed.end)
    if cursor.is_bad:
        return False
    parsed.value = cursor.at
    parsed.value_bytes = value_bytes
    if value_bytes > 0:
        cursor.at += value_bytes
    header_count = _varint(cursor, 31)
    if cursor.is_bad or header_count < 0 or header_count > parsed.end - cursor.at:
        return False
    while header_count > 0:
        header_count -= 1
        key_bytes = _field(cursor, parsed.end)
        if cursor.is_bad or key_bytes < 0:
            return False
        key = cursor.at
        cursor.at += key_bytes
        value_bytes = _field(cursor, parsed.end)
        if cursor.is_bad:
            return False
        if name != NULL and key_bytes == name_bytes and memcmp(key, name, name_bytes) == 0:
            parsed.id = cursor.at if value_bytes > 0 else NULL
            parsed.id_bytes = value_bytes if value_bytes > 0 else 0
        if value_bytes > 0:
            cursor.at += value_bytes
    return cursor.at == parsed.end


# -- fingerprints: MurmurHash3, x64, 128 bits, seed 0 ------------------------------------------------


cdef inline uint64_t _rotated(uint64_t number, int bits) noexcept nogil:
    return (number << bits) | (number >> (64 - bits))


cdef inline uint64_t _mixed(uint64_t number) noexcept nogil:
    number ^= number >> 33
    number *= <uint64_t>0xFF51AFD7ED558CCD
    number ^= number >> 33
    number *= <uint64_t>0xC4CEB9FE1A85EC53
    number ^= number >> 33
    return number


cdef inline void _digest(const uint8_t *data, int64_t size_bytes, uint64_t *into) noexcept nogil:
    cdef uint64_t first = 0
    cdef uint64_t second = 0
    cdef uint64_t block[2]
    cdef const uint8_t *at = data
    cdef int64_t left = size_bytes
    while left >= 16:
        memcpy(block, at, 16)
        block[0] *= <uint64_t>0x87C37B91114253D5
        first ^= _rotated(block[0], 31) * <uint64_t>0x4CF5AD432745937F
        first = (_rotated(first, 27) + second) * 5 + 0x52DCE729
        block[1] *= <uint64_t>0x4CF5AD432745937F
        second ^= _rotated(block[1], 33) * <uint64_t>0x87C37B91114253D5
        second = (_rotated(second, 31) + first) * 5 + 0x38495AB5
        at += 16
        left -= 16
    if left > 0:
        block[0] = block[1] = 0
        memcpy(block, at, left)
        second ^= _rotated(block[1] * <uint64_t>0x4CF5AD432745937F, 33) * <uint64_t>0x87C37B91114253D5
        first ^= _rotated(block[0] * <uint64_t>0x87C37B91114253D5, 31) * <uint64_t>0x4CF5AD432745937F
    first ^= <uint64_t>size_bytes
    second ^= <uint64_t>size_bytes
    first += second
    second += first
    first = _mixed(first)
    second = _mixed(second)
    first += second
    second += first
    into[0] = first
    into[1] = second


def fingerprint(bytes record_id):
    cdef uint64_t digest[2]
    _digest(<const uint8_t *>PyBytes_AS_STRING(record_id), len(record_id), digest)
    return PyBytes_FromStringAndSize(<char *>digest, 16)


# -- a batch -----------------------------------------------------------------------------------------


# So many entries are gone through with the interpreter's lock, as whoever lets go of that may wait for milliseconds to
# have it again. More than that are not: a thread that has much to do must not hold up the others.
cdef int64_t _WITH_LOCK = 8192


# Bytes that are filled before anybody sees them, and may then be cut short where they are: they may be many, and a copy
# would be made with the interpreter's lock.
cdef extern from "Python.h":
    PyObject *_unfilled_bytes "PyBytes_FromStringAndSize"(const char *nothing, Py_ssize_t size_bytes) except NULL
    char *_content "PyBytes_AS_STRING"(PyObject *unfilled) noexcept nogil
    int _cut_short "_PyBytes_Resize"(PyObject **unfilled, Py_ssize_t size_bytes) except -1


cdef bytes _filled(PyObject *unfilled, Py_ssize_t size_bytes):
    """The first `size_bytes` of it."""
    _cut_short(&unfilled, size_bytes)
    filled = <bytes>unfilled
    Py_DECREF(filled)  # The reference that there was; `filled` is one more.
    return filled


def read_ids(payload, Py_ssize_t record_count, bytes header_name, bint must_be_consecutive):
    cdef Py_buffer held
    cdef Cursor cursor
    cdef Parsed parsed
    cdef Py_ssize_t number
    cdef Py_ssize_t found = 0
    cdef const uint8_t *name = NULL
    cdef int64_t name_bytes = 0
    cdef bint is_sound = True
    cdef PyObject *unfilled
    cdef char *entries
    cdef int32_t delta
    if header_name is not None:
        name = <const uint8_t *>PyBytes_AS_STRING(header_name)
        name_bytes = len(header_name)
    PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
    try:
        if record_count < 0 or record_count > held.len:
            raise CorruptBatch(f"{record_count} records in {held.len} bytes")
        unfilled = _unfilled_bytes(NULL, record_count * _ENTRY)
        entries = _content(unfilled)
        cursor.at = <const uint8_t *>held.buf
        cursor.end = cursor.at + held.len
        cursor.is_bad = False
        with nogil:
            for number in range(record_count):
                if not _parse(&cursor, &parsed, name, name_bytes) or (
                    must_be_consecutive and parsed.offset_delta != number
                ):
                    is_sound = False
                    break
                if parsed.id_bytes > 0:
                    _digest(parsed.id, parsed.id_bytes, <uint64_t *>(entries + found * _ENTRY))
                    delta = <int32_t>parsed.offset_delta
                    memcpy(entries + found * _ENTRY + 16, &delta, 4)
                    found += 1
        read = _filled(unfilled, found * _ENTRY)
        if not is_sound or cursor.at != cursor.end:
            raise CorruptBatch("records cannot be read")
        return read
    finally:
        PyBuffer_Release(&held)


def survey(payload, Py_ssize_t record_count):
    """For records/validation.py: how many have no key, and the smallest and the largest timestamp delta.

    None if they cannot be read, or are not numbered from 0 on.
    """
    cdef Py_buffer held
    cdef Cursor cursor
    cdef Parsed parsed
    cdef Py_ssize_t number
    cdef Py_ssize_t keyless = 0
    cdef int64_t smallest = 0
    cdef int64_t largest = 0
    cdef bint is_sound = True
    PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
    try:
        cursor.at = <const uint8_t *>held.buf
        cursor.end = cursor.at + held.len
        cursor.is_bad = False
        with nogil:
            for number in range(record_count):
                if not _parse(&cursor, &parsed, NULL, 0) or parsed.offset_delta != number:
                    is_sound = False
                    break
                keyless += parsed.key_bytes < 0
                if number == 0:
                    smallest = largest = parsed.timestamp_delta
                smallest = min(smallest, parsed.timestamp_delta)
                largest = max(largest, parsed.timestamp_delta)
        if not is_sound or cursor.at != cursor.end:
            return None
        return keyless, smallest, largest
    finally:
        PyBuffer_Release(&held)


# What is left of the records of a batch. `payload` NULL: it is only counted.
cdef struct Left:
    char *payload
    Py_ssize_t size_bytes
    Py_ssize_t count
    int64_t largest_timestamp_delta
    bint is_sound


cdef int _leave_out(
    const Py_buffer *held, Py_ssize_t record_count, const char *dropped, Py_ssize_t dropped_count, Left *left
) except -1:
    if record_count <= _WITH_LOCK:
        _leave_out_all(held, record_count, dropped, dropped_count, left)
    else:
        with nogil:
            _leave_out_all(held, record_count, dropped, dropped_count, left)
    return 0


cdef void _leave_out_all(
    const Py_buffer *held, Py_ssize_t record_count, const char *dropped, Py_ssize_t dropped_count, Left *left
) noexcept nogil:
    cdef Cursor cursor
    cdef Parsed parsed
    cdef Py_ssize_t number
    cdef Py_ssize_t passed = 0
    cdef int32_t delta
    cursor.at = <const uint8_t *>held.buf
    cursor.end = cursor.at + held.len
    cursor.is_bad = False
    left.size_bytes = left.count = 0
    left.largest_timestamp_delta = -1
    left.is_sound = True
    for number in range(record_count):
        if not _parse(&cursor, &parsed, NULL, 0):
            left.is_sound = False
            return
        if passed < dropped_count:
            memcpy(&delta, dropped + passed * 4, 4)
            if parsed.offset_delta == delta:
                passed += 1
                continue
        if left.payload != NULL:
            memcpy(left.payload + left.size_bytes, parsed.start, parsed.end - parsed.start)
        if left.count == 0 or parsed.timestamp_delta > left.largest_timestamp_delta:
            left.largest_timestamp_delta = parsed.timestamp_delta
        left.size_bytes += parsed.end - parsed.start
        left.count += 1


def without(payload, Py_ssize_t record_count, bytes dropped):
    """See records/ids.py."""
    cdef Py_buffer held
    cdef Left left
    cdef const char *deltas = PyBytes_AS_STRING(dropped)
    cdef Py_ssize_t dropped_count = len(dropped) // 4
    PyObject_GetBuffer(payload, &held, PyBUF_SIMPLE)
    try:
        left.payload = NULL
        _leave_out(&held, record_count, deltas, dropped_count, &left)
        if not left.is_sound:
            raise CorruptBatch("records cannot be read")
        kept = PyBytes_FromStringAndSize(NULL, left.size_bytes)
        left.payload = PyBytes_AS_STRING(kept)
        _leave_out(&held, record_count, deltas, dropped_count, &left)
        return kept, left.count, left.largest_timestamp_delta
    finally:
        PyBuffer_Release(&held)


def entries_without(bytes entries, bytes dropped):
    """See records/ids.py."""
    cdef const char *data = PyBytes_AS_STRING(entries)
    cdef const char *deltas = PyBytes_AS_STRING(dropped)
    cdef int64_t count = len(entries) // _ENTRY
    cdef int64_t dropped_count = len(dropped) // 4
    cdef int64_t kept
    cdef PyObject *unfilled = _unfilled_bytes(NULL, count * _ENTRY)
    cdef char *into = _content(unfilled)
    if count <= _WITH_LOCK:
        kept = _keep_entries(data, count, deltas, dropped_count, into)
    else:
        with nogil:
            kept = _keep_entries(data, count, deltas, dropped_count, into)
    return _filled(unfilled, kept * _ENTRY)


cdef int64_t _keep_entries(
    const char *entries, int64_t count, const char *dropped, int64_t dropped_count, char *into
) noexcept nogil:
    """How many there are left."""
    cdef int64_t place, passed = 0, kept = 0
    for place in range(count):
        if passed < dropped_count and memcmp(entries + place * _ENTRY + 16, dropped + passed * 4, 4) == 0:
            passed += 1
        else:
            memcpy(into + kept * _ENTRY, entries + place * _ENTRY, _ENTRY)
            kept += 1
    return kept

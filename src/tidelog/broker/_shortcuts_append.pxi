# A larger batch or answer goes out in parts, without being copied.
cdef Py_ssize_t _COPIED_MAX = 65536

cdef int _ENTRY_BYTES = TIME_ENTRY.size

# -- one batch -------------------------------------------------------------------------------------

# Where a batch lies in memory, and what its header says of it.
cdef struct Batch:
    uint8_t *start
    Py_ssize_t size_bytes
    PyObject *view
    Py_ssize_t view_at
    int32_t last_offset_delta
    int64_t max_timestamp_ms
    int64_t producer_id


cdef bint _has_room(
    Batch *batch, log, int64_t last_offset, int64_t size_bytes, int64_t batch_count
) except -1:
    """Whether `Log.roll_needed` would say no, and nothing has to be done about what is there.

    `batch` ends with `last_offset` and is one of `batch_count` that come with `size_bytes` in all.
    """
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
    if used_bytes == 0 or first_timestamp_ms < 0:
        return False
    if used_bytes + size_bytes > _number(log, _LOG_SEGMENT_BYTES):
        return False
    if used_bytes + size_bytes >= _number(log, _LOG_WRITING_DUE_AT):
        return False
    if batch.max_timestamp_ms > first_timestamp_ms and (
        batch.max_timestamp_ms - first_timestamp_ms > _number(log, _LOG_ROLL_AFTER_MS)
    ):
        return False
    if last_offset - _number(segment, _SEGMENT_BASE_OFFSET) > _RELATIVE_OFFSET_MAX:
        return False
    if batch_count == 1 and not _needs_entry(log, indexer):
        return True
    # Each batch may get an entry.
    return not indexer.is_full(log._segment_index_bytes - (batch_count - 1) * _ENTRY_BYTES)


cdef bint _needs_entry(log, indexer) except -1:
    return _number(indexer, _INDEXER_UNINDEXED_BYTES) > _number(log, _LOG_INDEX_INTERVAL_BYTES)


cdef object _records(Batch *batch):
    """The batch for Python's eyes."""
    return (<object>batch.view)[batch.view_at : batch.view_at + batch.size_bytes]


cdef uint32_t _checksum(Batch *batch) except? 0:
    if _checksum_in_hardware is NULL or batch.size_bytes >= _LONG_BYTES:
        return crc32c(_records(batch)[_SUMMED_AT:])
    return _checksum_in_hardware(batch.start + _SUMMED_AT, batch.size_bytes - _SUMMED_AT)


cdef int _write(Batch *batch, log, int64_t base_offset) except -1:
    """Write a stamped batch, with the books that `Log.append` keeps."""
    segment = _get(log, _LOG_ACTIVE)
    indexer = _get(segment, _SEGMENT_INDEXER)
    cdef int64_t position = _number(segment, _SEGMENT_KNOWN_SIZE_BYTES)
    cdef int64_t last_offset = base_offset + batch.last_offset_delta
    cdef int64_t relative_offset = last_offset - _number(segment, _SEGMENT_BASE_OFFSET)
    cdef bint needs_entry = _needs_entry(log, indexer)
    assert _number(log, _LOG_END_OFFSET) <= base_offset
    if needs_entry:
        indexer.make_room()
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


# What was appended last by a producer, for followers to fetch without a read. Bytes of a segment do
# not change unless its log is cut.
cdef object _last_segment = None
cdef int64_t _last_truncations = 0
cdef int64_t _last_position = 0
cdef Py_ssize_t _last_bytes = 0
cdef bytes _last_batch = None


cdef int _remember(Batch *batch, log) except -1:
    global _last_segment, _last_truncations, _last_position, _last_bytes, _last_batch
    _last_segment = None
    if batch.size_bytes > _COPIED_MAX:
        return 0
    _last_batch = PyBytes_FromStringAndSize(<char *>batch.start, batch.size_bytes)
    _last_bytes = batch.size_bytes
    _last_segment = _get(log, _LOG_ACTIVE)
    _last_truncations = _number(log, _LOG_TRUNCATIONS)
    _last_position = _number(_last_segment, _SEGMENT_KNOWN_SIZE_BYTES) - batch.size_bytes
    return 0


cdef bytes _remembered(log, segment, int64_t position, int64_t size_bytes):
    """The bytes at `position`, if they are those that were appended last."""
    if _last_segment is not segment or _last_truncations != _number(log, _LOG_TRUNCATIONS):
        return None
    if _last_position != position or _last_bytes != size_bytes:
        return None
    return _last_batch


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

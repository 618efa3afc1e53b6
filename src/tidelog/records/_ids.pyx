# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Ids of records, compiled: reading them out of a batch, leaving records out of it, remembering them; keys, and columns.

The same as `records/ids.py`, `records/id_table.py`, `records/superseded.py`, `records/columns.py` and
`storage/key_offsets.py`, which say what is done and why, and which are used where this file is not compiled.
tests/unit/records/test_ids.py, test_id_table.py, test_superseded.py and test_columns.py and
tests/unit/storage/test_key_offsets.py hold the two against each other.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from tidelog.base.errors import CorruptBatch
from tidelog.records.batch import read_header
from tidelog.records.control import ControlType, read_transaction_end
from tidelog.records.record import uncompressed_payload

cdef extern from *:
    """
    #ifndef SOURCE_CHECKSUM
    #error "hatch_build.py compiles this and says what SOURCE_CHECKSUM is"
    #endif
    """
    const uint32_t STATED_CHECKSUM "SOURCE_CHECKSUM"

SOURCE_CHECKSUM = STATED_CHECKSUM

include "_ids_records.pxi"
include "_ids_siphash.pxi"
include "_ids_table.pxi"
include "_ids_keys.pxi"
include "_ids_superseded.pxi"
include "_ids_columns.pxi"

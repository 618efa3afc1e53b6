# -- hashes of keys: SipHash-2-4, 128 bits ------------------------------------------------------------
#
# Whoever chooses a key must not be able to choose its hash: two keys with the same one are taken for one, and those with
# the same slot are searched one after the other. Nobody outside knows the key of the hash.


cdef struct HashKey:
    uint64_t low
    uint64_t high


cdef HashKey _hash_key(bytes key) except *:
    cdef HashKey hash_key
    if len(key) != sizeof(HashKey):
        raise ValueError(f"a key of {sizeof(HashKey)} bytes, not {len(key)}")
    memcpy(&hash_key, PyBytes_AS_STRING(key), sizeof(HashKey))
    return hash_key


cdef inline void _sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[2] += v[3]
    v[1] = _rotated(v[1], 13) ^ v[0]
    v[3] = _rotated(v[3], 16) ^ v[2]
    v[0] = _rotated(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = _rotated(v[1], 17) ^ v[2]
    v[3] = _rotated(v[3], 21) ^ v[0]
    v[2] = _rotated(v[2], 32)


cdef inline void _sip_word(uint64_t *v, uint64_t word) noexcept nogil:
    v[3] ^= word
    _sip_round(v)
    _sip_round(v)
    v[0] ^= word


cdef inline void _siphash(
    const HashKey *hash_key, const uint8_t *data, int64_t size_bytes, uint64_t *into
) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef int64_t left = size_bytes
    cdef int number
    v[0] = hash_key.low ^ <uint64_t>0x736F6D6570736575
    v[1] = hash_key.high ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    v[2] = hash_key.low ^ <uint64_t>0x6C7967656E657261
    v[3] = hash_key.high ^ <uint64_t>0x7465646279746573
    while left >= 8:
        memcpy(&word, data, 8)
        _sip_word(v, word)
        data += 8
        left -= 8
    word = 0
    memcpy(&word, data, left)
    _sip_word(v, word | <uint64_t>size_bytes << 56)
    v[2] ^= 0xEE
    for number in range(4):
        _sip_round(v)
    into[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for number in range(4):
        _sip_round(v)
    into[1] = v[0] ^ v[1] ^ v[2] ^ v[3]


def siphash(bytes hash_key, bytes data):
    """For tests: tables use it from inside."""
    cdef uint64_t digest[2]
    cdef HashKey key = _hash_key(hash_key)
    _siphash(&key, <const uint8_t *>PyBytes_AS_STRING(data), len(data), digest)
    return PyBytes_FromStringAndSize(<char *>digest, 16)

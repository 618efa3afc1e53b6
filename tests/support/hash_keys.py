"""Keys of hashes, and keys of records that collide where a hash has none."""

HASH_KEY = bytes(range(16))

GROUP = "payments"
OTHER_GROUP = "8096e3230e44$.\x01W\x05@wx)W\x05\x16\r\x0cwX-batch-job-7"
"""A commit of this group for partition 0 of `orders` has a key with the same MurmurHash3 (128 bits,
seed 0) as one of GROUP. Every step of that hash can be undone: it took 4 seconds to find."""

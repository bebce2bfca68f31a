"""IP addresses as the dataplane's maps have them: packed as in `cwdp.shared.addresses`, as four words in host order."""

import numpy as np

from cwdp.shared.addresses import Address, address_bytes, bytes_address

Words = np.ndarray[tuple[int], np.dtype[np.uint32]]


def address_words(address: Address) -> Words:
    """An address; shape (4,)."""
    return np.frombuffer(address_bytes(address), dtype=">u4").astype(np.uint32)


def words_address(words: Words) -> Address:
    """The address that `address_words` was made from."""
    return bytes_address(np.asarray(words, dtype=">u4").tobytes())

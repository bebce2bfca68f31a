"""Management datagrams as the kernel gives them: which are answers, and what they say."""

import numpy as np
import pytest

from cwdp.ib.umad import DATA_BYTES, MAD_BYTES, METHOD_GET, METHOD_GET_RESPONSE, NO_ANSWER, answers_of, row_of

HEADERS = (56, 64)
ETIMEDOUT = 110


def datagram(
    header_bytes: int, number: int, *, error: int = 0, method: int = METHOD_GET_RESPONSE, status: int = 0
) -> bytes:
    header = bytearray(header_bytes)
    header[4:8] = np.uint32(error).tobytes()
    mad = bytearray(MAD_BYTES)
    mad[3], mad[4:6], mad[8:16] = method, status.to_bytes(2), (7 << 32 | number).to_bytes(8)
    mad[64:] = bytes([number % 256]) * DATA_BYTES
    return bytes(header + mad)


@pytest.mark.parametrize("header_bytes", HEADERS)
def test_answers_have_the_number_the_status_and_the_data(header_bytes: int) -> None:
    came = [
        datagram(header_bytes, 5),
        datagram(header_bytes, 0xFFFFFFFF, status=0x801C),
        datagram(header_bytes, 6, error=ETIMEDOUT, method=METHOD_GET),
        datagram(header_bytes, 8, method=METHOD_GET),
    ]
    found = answers_of(came, row_of(header_bytes))
    assert found.numbers.tolist() == [5, 0xFFFFFFFF, 6, 8]
    assert found.statuses.tolist() == [0, 0x1C, NO_ANSWER, NO_ANSWER]
    assert found.data.tolist() == [[number % 256] * DATA_BYTES for number in (5, 0xFFFFFFFF, 6, 8)]


@pytest.mark.parametrize("came", [[], [b""], [datagram(64, 1)[:-1]], [datagram(64, 1) + b"x"]])
def test_what_is_no_datagram_is_no_answer(came: list[bytes]) -> None:
    found = answers_of(came, row_of(64))
    assert (len(found.numbers), len(found.statuses), found.data.shape) == (0, 0, (0, DATA_BYTES))

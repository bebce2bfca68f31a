"""Why a bus server is not spoken to: what is wrong with the certificate that it shows, and the next step."""

import ssl

from cwdp.errors import IdentityError

_NOT_YET_VALID, _EXPIRED = 9, 10
"""Of OpenSSL: `X509_V_ERR_CERT_NOT_YET_VALID`, `X509_V_ERR_CERT_HAS_EXPIRED`."""

_RENEW = (
    "renew it: restart the manager that runs that bus server; for one of your own, run `cwdp fleet server NAME` again,"
    " copy server.pem and server.key from there, and restart it"
)


def untrusted(error: ssl.SSLCertVerificationError, bus: str) -> IdentityError:
    """What is wrong.

    Args:
        error: that TLS gave.
        bus: where the server is, as people may see it.
    """
    if error.verify_code not in (_NOT_YET_VALID, _EXPIRED):
        return IdentityError(
            f"what answers at {bus} is no bus server of this host's fleet: {error.verify_message}",
            "give the address of this fleet's bus: `nats` in the configuration, or `cwdp fleet invite HOST --bus URL`",
        )
    if error.verify_code == _EXPIRED:
        return IdentityError(
            f"the certificate of the bus server at {bus} has expired by this host's clock",
            f"set this host's clock if it is wrong; otherwise {_RENEW}",
        )
    return IdentityError(
        f"the certificate of the bus server at {bus} is not valid yet by this host's clock",
        f"set this host's clock if it is wrong; otherwise set that of the machine where the certificate was made, and {_RENEW}",
    )

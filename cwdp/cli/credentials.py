"""What commands show a manager that they reach by TCP, and by what they know it: files that environment variables name."""

import os
import re
import ssl
import time
from calendar import timegm
from ipaddress import ip_address
from pathlib import Path

from cwdp.errors import ConfigError, CwdpError, IdentityError
from cwdp.shared.durations import in_words

TOKEN, CERTIFICATE, AUTHORITY = "CWDP_TOKEN_FILE", "CWDP_CERTIFICATE_FILE", "CWDP_AUTHORITY_FILE"
DEFAULT_AUTHORITY = Path("/etc/cwdp/authority.crt")

_GET_AUTHORITY = (
    "on the manager's host: cwdp fleet authority > authority.crt; copy it to "
    f"{DEFAULT_AUTHORITY} here, or name it with {AUTHORITY}"
)
_CLOCK = "set the clock that is wrong"

_NOT_YET_VALID, _EXPIRED, _OTHER_HOST, _OTHER_ADDRESS = 9, 10, 62, 64
"""OpenSSL's X509_V_ERR_..."""

SKEW_S = 3_600.0
"""So long before it was made a certificate holds already."""

_TIME = "%Y-%m-%d %H:%M:%S"
_TIMES_LINE = re.compile(r"^\S+: \w+ from (\S+ \S+) UTC until (\S+ \S+) UTC$", re.MULTILINE)


def is_loopback(host: str) -> bool:
    """Whether what is sent to a host stays on this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def headers(host: str, *, is_tls: bool) -> dict[str, str]:
    """With the token, where there is one.

    Raises:
        ConfigError: it would go over a network in the clear.
        IdentityError: it cannot be read, or others can read it.
    """
    path = os.environ.get(TOKEN)
    if not path:
        return {}
    if not is_tls and not is_loopback(host):
        raise ConfigError(
            f"the token in {path} would go to {host} in the clear", "give --manager https://HOST:PORT"
        )
    token = _secret(Path(path), "the token").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise IdentityError(f"{path} holds no token", "write into it what `cwdp fleet token` printed, alone")
    return {"Authorization": f"Bearer {token}"}


def tls() -> ssl.SSLContext:
    """By which a manager must be known, and with the certificate to be shown, where there is one.

    Raises:
        IdentityError: a file cannot be read, or is not what it should be.
    """
    given = os.environ.get(AUTHORITY)
    authority = Path(given) if given else DEFAULT_AUTHORITY
    try:
        context = ssl.create_default_context(cafile=authority if given or authority.exists() else None)
    except (OSError, ssl.SSLError) as error:
        raise IdentityError(f"cannot use the authority {authority}: {_why(error)}", _GET_AUTHORITY) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    own = os.environ.get(CERTIFICATE)
    if own:
        text = _secret(Path(own), "the certificate and its key")
        try:
            context.load_cert_chain(own)
        except (OSError, ssl.SSLError) as error:
            raise IdentityError(
                f"{own} is no key with a certificate: {_why(error)}",
                "give the file that `cwdp fleet certificate NAME --role ROLE` wrote",
            ) from error
        _require_valid(own, text)
    return context


def explained(error: BaseException, url: str) -> CwdpError | None:
    """What is wrong where a TLS connection is not made, and the next step; None for anything else."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return IdentityError(*_not_known(error, url))
    own = os.environ.get(CERTIFICATE) if url.startswith("https:") else None
    broke_off = isinstance(error, (ConnectionError, ssl.SSLEOFError)) and not isinstance(
        error, ConnectionRefusedError
    )
    if own and broke_off:
        return IdentityError(
            f"the manager at {url} broke off when it was shown {own}; this host's clock says {_shown(time.time())}",
            "is it of this fleet, not expired, and is the manager's clock right? else: cwdp fleet certificate NAME --role ROLE",
        )
    if not isinstance(error, ssl.SSLError):
        return None
    if "WRONG_VERSION_NUMBER" in (error.reason or ""):
        return ConfigError(
            f"what answers at {url} speaks no TLS", "on loopback managers speak http://HOST:PORT"
        )
    return IdentityError(
        f"there is no TLS connection to {url}: {error.reason or error}", "check the URL and its port"
    )


def times_line(name: str, role: str, issued_s: float, expires_s: float) -> str:
    """What stands above a certificate in its file, for people and for `tls`; other programs pass over it (RFC 7468, 2)."""
    return f"{name}: {role} from {_shown(issued_s)} until {_shown(expires_s)}\n"


def _shown(time_s: float) -> str:
    return time.strftime(f"{_TIME} UTC", time.gmtime(time_s))


def _require_valid(path: str, text: str) -> None:
    """Let through a certificate that holds now: managers break off without a word when they are shown another."""
    found = _TIMES_LINE.search(text)
    if found is None:
        return
    issued_s, expires_s = (timegm(time.strptime(each, _TIME)) for each in found.groups())
    now_s = time.time()
    if now_s >= expires_s:
        raise IdentityError(
            f"{path} expired {in_words(now_s - expires_s)} ago by this host's clock, which says {_shown(now_s)}",
            f"{_CLOCK}; else ask an administrator for `cwdp fleet certificate NAME --role ROLE`",
        )
    if now_s < issued_s - SKEW_S:
        raise IdentityError(
            f"{path} was made {in_words(issued_s - now_s)} ahead of this host's clock, which says {_shown(now_s)}",
            _CLOCK,
        )


def _not_known(error: ssl.SSLCertVerificationError, url: str) -> tuple[str, str]:
    if error.verify_code == _EXPIRED:
        return (
            f"the certificate of {url} has expired by this host's clock, which says {_shown(time.time())}",
            f"{_CLOCK}; else restart the manager, which makes a new one, or renew your own of its [tls]",
        )
    if error.verify_code == _NOT_YET_VALID:
        return (
            f"the certificate of {url} is not valid yet by this host's clock, which says {_shown(time.time())}",
            _CLOCK,
        )
    if error.verify_code in (_OTHER_HOST, _OTHER_ADDRESS):
        return (
            f"the certificate of {url} is not for that name: {error.verify_message}",
            "use a name that it is for, or add this one to `names` under [tls] of the manager's configuration",
        )
    return f"what answers at {url} shows a certificate of an authority not known here", _GET_AUTHORITY


def _secret(path: Path, what: str) -> str:
    """A file that nobody else may read."""
    try:
        text, mode = path.read_text(), path.stat().st_mode
    except OSError as error:
        raise IdentityError(f"cannot read {what}, {path}: {_why(error)}", "see docs/identity.md") from error
    except UnicodeDecodeError as error:
        raise IdentityError(f"{path} is not {what}", "see docs/identity.md") from error
    if mode & 0o077:
        raise IdentityError(f"{path} can be read by others than its owner", f"run: chmod 600 {path}")
    return text


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return getattr(error, "strerror", None) or str(error)

"""Why something cannot be read, in words for people."""

import errno
import os

from cwdp.errors import CwdpError

WORDS = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file",
    errno.EACCES: "permission denied: root only",
    errno.EPERM: "permission denied: root only",
    errno.EINVAL: "the driver does not tell",
    errno.EOPNOTSUPP: "the driver does not tell",
    errno.ENODATA: "the driver does not tell",
    errno.EIO: "the device does not answer",
    errno.ELOOP: "links that loop",
    errno.ENODEV: "no such device",
}


class Unreadable(CwdpError):  # noqa: N818 - no error: hosts differ in what they tell
    """Something is not available; the message is the reason."""


def of_error(error: OSError) -> Unreadable:
    """The reason behind an error of the kernel."""
    code = error.errno or 0
    return Unreadable(WORDS.get(code) or os.strerror(code).lower())

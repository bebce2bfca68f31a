"""What the kernel that runs here has, by its version."""

import platform

VERSION = tuple(int(part) for part in platform.release().split(".")[:2])
HAS_TCX = VERSION >= (6, 6)
TAP_HAS_METADATA = VERSION >= (6, 15)
NO_TCX = "this kernel has no TCX: Linux 6.6 has"

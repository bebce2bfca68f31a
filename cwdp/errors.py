"""Every error that cwdp raises for a reason it understands.

CwdpError
├── ConfigError            a setting, an argument or a file is wrong      (exit status 2)
│   └── ChecksError        checks of an audit have mistakes
├── PrivilegeError         the caller may not do this
├── DataplaneError         loading, pinning or attaching failed
│   ├── InterfaceError     no such interface, or one that cannot be used
│   ├── ForeignProgramError  somebody else's program holds the hook
│   ├── ForeignQdiscError  somebody else shapes what leaves by the interface
│   ├── VersionError       the pinned tree was made by another build
│   └── KernelError        the kernel lacks something that is needed
├── SteeringError          a queue pair that cannot be steered so            (exit status 2)
├── RdmaError              no RDMA here, or a device that cannot do it
├── IdentityError          a credential is missing, wrong, expired or refused
├── BusError               the message bus cannot be reached or started
├── ManagerError           the manager cannot be reached or refused
│   └── RefusedError       it refused
└── LabError               the lab cannot be built, found or changed

Each carries what was wrong and the next step. A boundary translates what libraries raise.
"""


class CwdpError(Exception):
    """What was wrong (`message`) and what to do next (`hint`)."""

    exit_status = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class ConfigError(CwdpError):
    """A setting, an argument or a file is wrong."""

    exit_status = 2


class ChecksError(ConfigError):
    """Files of an audit's checks have mistakes: all of them, each with its file and line."""


class PrivilegeError(CwdpError):
    """The caller may not do this."""


class DataplaneError(CwdpError):
    """Loading, pinning or attaching failed."""


class InterfaceError(DataplaneError):
    """No such interface, or one that cannot be used."""


class ForeignProgramError(DataplaneError):
    """Somebody else's program holds the hook."""


class ForeignQdiscError(DataplaneError):
    """Somebody else shapes what leaves by the interface."""


class VersionError(DataplaneError):
    """The pinned tree was made by another build."""


class KernelError(DataplaneError):
    """The kernel lacks something that is needed."""


class SteeringError(CwdpError):
    """A queue pair cannot be steered as asked."""

    exit_status = 2


class RdmaError(CwdpError):
    """No RDMA here, or a device that cannot do what was asked."""


class IdentityError(CwdpError):
    """A credential is missing, wrong, expired or refused."""


class BusError(CwdpError):
    """The message bus cannot be reached or started."""


class ManagerError(CwdpError):
    """The manager cannot be reached or refused."""


class RefusedError(ManagerError):
    """The manager refused; `is_asked_wrongly` where that is for what was wrong in the asking."""

    def __init__(self, message: str, hint: str = "", *, is_asked_wrongly: bool = False) -> None:
        super().__init__(message, hint)
        self.is_asked_wrongly = is_asked_wrongly


class LabError(CwdpError):
    """The lab cannot be built, found or changed."""

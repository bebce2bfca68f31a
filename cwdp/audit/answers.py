"""What is told by no file, as plain data: what live sources ask for, and what recorded trees hold as JSON."""

from msgspec import Struct


class Uname(Struct, frozen=True):
    """Of uname(2)."""

    release: str
    machine: str


class KernelClock(Struct, frozen=True):
    """What adjtimex(2) says of the kernel's clock.

    Attributes:
        state: what it returns; 5 is TIME_ERROR.
        status: bits of STA_...
    """

    state: int
    status: int


class Own(Struct, frozen=True):
    """What cwdp knows of itself here.

    Attributes:
        version: of cwdp.
        bounds_ns: how far the clock of each NIC's dataplane may be off, of those that are synchronised.
        problem: why there are no bounds.
    """

    version: str
    bounds_ns: dict[str, int] = {}
    problem: str = ""


class Link(Struct, frozen=True, kw_only=True):
    """A network interface by rtnetlink (linux/if_link.h).

    Attributes:
        hardware: ARPHRD_...
        kind: of a virtual one, such as `bond`; "" of hardware.
        port_kind: what its master is.
        master, lower: indices; 0 for none.
        flags: IFF_...
        carrier_changes: None where the kernel does not tell.
    """

    index: int
    name: str
    hardware: int = 1
    kind: str = ""
    port_kind: str = ""
    master: int = 0
    lower: int = 0
    mtu: int = 0
    flags: int = 0
    carrier_changes: int | None = None


class Links(Struct, frozen=True):
    """All network interfaces."""

    links: list[Link]


class Address(Struct, frozen=True):
    """An IP address of an interface, with the length of its prefix; the scope is RT_SCOPE_..., 0 for global."""

    index: int
    address: str
    prefix: int
    scope: int = 0


class Addresses(Struct, frozen=True):
    """All IP addresses."""

    addresses: list[Address]


class Route(Struct, frozen=True, kw_only=True):
    """A unicast route of any table.

    Attributes:
        family: 4 or 6.
        destination: "" for all.
        interfaces: indices of those that it leads over.
        table: by its number.
        metric: the lower comes first.
    """

    family: int
    destination: str = ""
    prefix: int = 0
    interfaces: list[int]
    table: int = 254
    metric: int = 0


class Routes(Struct, frozen=True):
    """All unicast routes."""

    routes: list[Route]


class Driver(Struct, frozen=True):
    """What a NIC's driver tells of itself (`struct ethtool_drvinfo`)."""

    driver: str
    version: str
    firmware: str


class Ethtool(Struct, frozen=True, kw_only=True):
    """What ethtool's netlink tells of a NIC (Documentation/networking/ethtool-netlink.rst).

    Attributes:
        numbers: by message and attribute, such as {"rings.rx": 1024}; the names are in `kernel/ethtool.py`.
        features: that are active.
        problems: why the kernel does not answer a message, by its name.
    """

    numbers: dict[str, int] = {}
    features: list[str] = []
    problems: dict[str, str] = {}


class Module(Struct, frozen=True):
    """The memory of a transceiver, in hexadecimal digits.

    Attributes:
        memory: of 256 bytes: the lower page and upper page 00h (SFF-8636, CMIS), or A0h (SFF-8472).
        lanes: of 128 bytes: page 11h (CMIS); "" for none.
        diagnostics: of 128 bytes: the lower half of A2h (SFF-8472); "" for none.
    """

    memory: str
    lanes: str = ""
    diagnostics: str = ""


class Dcb(Struct, frozen=True, kw_only=True):
    """Data centre bridging of a NIC (IEEE 802.1Qaz, linux/dcbnl.h).

    Attributes:
        pfc: a bit for each priority that has it; None where the driver does not tell, as with the others.
        algorithms, percent: of each traffic class; IEEE_8021QAZ_TSA_...
        classes: of each priority.
        applications: selector, protocol and priority of each entry of the table.
        trust: selectors that are trusted, the first most; None where the kernel is older than 6.2.
    """

    pfc: int | None = None
    algorithms: list[int] | None = None
    percent: list[int] | None = None
    classes: list[int] | None = None
    applications: list[list[int]] = []
    trust: list[int] | None = None


class Devlink(Struct, frozen=True, kw_only=True):
    """What devlink tells of a device.

    Attributes:
        eswitch_mode: DEVLINK_ESWITCH_MODE_...; None where `problems` says why.
        running, stored: versions by name; None likewise.
        problems: by `eswitch`, `info`.
    """

    eswitch_mode: int | None = None
    running: dict[str, str] | None = None
    stored: dict[str, str] | None = None
    problems: dict[str, str] = {}


class Gpu(Struct, frozen=True, kw_only=True):
    """A GPU as NVML has it.

    Attributes:
        values: by the names of `kernel/nvml.py`, such as {"power_limit_mw": 700000}.
        problems: why NVML does not tell one, by the same names.
    """

    index: int
    pci_address: str
    values: dict[str, int | str | list[int]] = {}
    problems: dict[str, str] = {}


class Gpus(Struct, frozen=True):
    """All GPUs that NVML has, and the version of their driver."""

    driver: str
    gpus: list[Gpu]

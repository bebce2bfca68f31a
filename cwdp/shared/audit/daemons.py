"""Programs that discipline clocks."""

DAEMONS = {
    "chronyd": "chronyd",
    "ntpd": "ntpd",
    "ntp-daemon": "ntpd-rs",
    "openntpd": "openntpd",
    "phc2sys": "phc2sys",
    "ptp4l": "ptp4l",
    "systemd-timesyn": "systemd-timesyncd",
    "ts2phc": "ts2phc",
}
"""What disciplines clocks, by what the kernel calls the process: 15 characters of its name."""

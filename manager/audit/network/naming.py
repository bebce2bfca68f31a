"""How what is found about the fabric is named. Pure."""

from manager.audit.results import FABRIC
from manager.fabric.routes import DirectedLink, is_nic


def link_subject(link: DirectedLink) -> tuple[str, str]:
    """The host of a result about one way of a link, and its subject; a NIC's links are its host's."""
    nic = next((node for node in link if is_nic(node)), "")
    host, _, ifname = nic.rpartition("/")
    name = f"{link.a} > {link.b}"
    return (host, f"{ifname}: {name}") if nic else (FABRIC, name)

"""The lab: an ECMP leaf-spine fabric in network namespaces, on one machine, as root.

For other Python code (stable):

    lab = Lab.open("cwdp")            # LabError if it is not up
    lab.hosts                         # Host(name, netns, nics, mgmt_address, clock); Nic(name, mac, leaf, ipv4, ipv6)
    lab.mgmt_netns, lab.mgmt_address  # where the bus runs
    lab.run_dir                       # files of what runs in the lab; removed by `down`
    lab.popen("h1", ["cwdp", ...])    # starts in h1's network namespace, recorded, stopped by `down`
    with netns_enter(lab.hosts[0].netns):
        socket.socket(...)            # opened in h1; moves the calling thread only, so never await inside

`tools.lab.lifecycle` raises and removes labs, `tools.lab.faults` cuts and heals links, `tools.lab.traffic.load` fills them.
"""

from tools.lab.lab import Host, Lab
from tools.lab.network.netns import netns_enter
from tools.lab.topology import LabSpec, Nic

__all__ = ["Host", "Lab", "LabSpec", "Nic", "netns_enter"]

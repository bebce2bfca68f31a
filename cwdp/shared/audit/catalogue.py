"""The facts that there are: what each is called, of what kind it is, in which area it is read, what it means."""

from typing import Literal

from msgspec import Struct

ValueKind = Literal["flag", "number", "text", "numbers", "texts"]


class Fact(Struct, frozen=True):
    """A fact of the catalogue.

    Attributes:
        kind: `flag` for bool, `number` for int or float, `text`, `numbers` and `texts` for lists of them.
        area: which part of the collection reads it (`HostFacts.troubles`).
        what: it means, in few words; with the file or the call that tells it.
        since: the version of the catalogue (`FACTS_VERSION`) that has it first.
        is_ordered: of a list, whether its order means something; else it is a set.
    """

    kind: ValueKind
    area: str
    what: str
    since: int = 1
    is_ordered: bool = False


CATALOGUE: dict[str, Fact] = {
    "host.kernel_release": Fact("text", "system", "release of the kernel; uname(2)"),
    "host.os": Fact("text", "system", "ID and VERSION_ID of os-release(5), such as `debian 12`"),
    "host.architecture": Fact("text", "system", "machine; uname(2)"),
    "host.command_line": Fact("texts", "system", "parameters of the kernel, sorted; /proc/cmdline"),
    "host.iommu": Fact(
        "text", "system", "`off`, `pt` or `translating`, by the command line and iommu groups"
    ),
    "host.product": Fact("text", "system", "vendor and product; /sys/class/dmi/id"),
    "host.bios_version": Fact("text", "system", "of the firmware; /sys/class/dmi/id"),
    "host.bios_date": Fact("text", "system", "of the firmware, as YYYY-MM-DD; /sys/class/dmi/id"),
    "host.cpu_model": Fact("text", "processors", "of the first processor; /proc/cpuinfo"),
    "host.cpus": Fact("number", "processors", "processors that are online"),
    "host.numa_nodes": Fact("number", "processors", "NUMA nodes that are online"),
    "host.governors": Fact("texts", "processors", "all frequency governors in use; cpufreq"),
    "host.memory_bytes": Fact("number", "memory", "MemTotal of /proc/meminfo"),
    "host.swap_bytes": Fact("number", "memory", "SwapTotal of /proc/meminfo"),
    "host.hugepages_2m": Fact("number", "memory", "reserved pages of 2 MiB"),
    "host.hugepages_1g": Fact("number", "memory", "reserved pages of 1 GiB"),
    "host.transparent_hugepages": Fact("text", "memory", "`always`, `madvise` or `never`"),
    "host.numa_balancing": Fact("flag", "memory", "whether the kernel moves pages between nodes"),
    "host.modules": Fact("texts", "software", "modules that are loaded, of those that matter here"),
    "host.ofed_version": Fact("text", "software", "version of mlx5_core where it is not the kernel's own"),
    "host.rdma_core_version": Fact("text", "software", "of libibverbs, by its file name"),
    "host.gpu_driver": Fact("text", "software", "version of the GPUs' driver"),
    "host.has_gpu_peer_memory": Fact("flag", "software", "whether RDMA devices can reach GPUs' memory"),
    "host.cwdp_version": Fact("text", "software", "of the agent"),
    "host.clock_source": Fact("text", "clock", "the kernel's clock source"),
    "host.clock_daemons": Fact("texts", "clock", "programs that discipline clocks here"),
    "host.clock_synchronised": Fact(
        "flag", "clock", "whether the kernel's clock counts as synchronised; adjtimex(2)"
    ),
    "host.clock_bound_ns": Fact("number", "clock", "how far cwdp's clock of this host may be off"),
    "host.acs_bridges": Fact("texts", "pci", "PCIe bridges that redirect requests between devices (ACS)"),
    "host.dns_servers": Fact("texts", "routes", "of resolv.conf(5)", is_ordered=True),
    "host.default_routes": Fact("texts", "routes", "NICs of default routes, by family, such as `ipv4 eth0`"),
    "host.rp_filter": Fact("number", "routes", "the higher of `all` and `default`; ip-sysctl"),
    "host.arp_ignore": Fact("number", "routes", "of `all`; ip-sysctl"),
    "host.arp_announce": Fact("number", "routes", "of `all`; ip-sysctl"),
    "host.bus_rtt_ns": Fact("number", "reach", "round trip to the bus server; in audits of the network"),
    "host.gateways_silent": Fact(
        "texts", "reach", "gateways of default routes that answer no echo; in audits of the network"
    ),
    "host.dns_silent": Fact("texts", "reach", "name servers that answer no query; in audits of the network"),
    "nic.driver": Fact("text", "nics", "of the device"),
    "nic.driver_version": Fact("text", "nics", "as the driver tells; ethtool"),
    "nic.firmware": Fact("text", "nics", "as the driver tells; ethtool"),
    "nic.device": Fact("text", "pci", "vendor, device and subsystem numbers, such as `15b3:1021 15b3:0040`"),
    "nic.pci_address": Fact("text", "pci", "where it is, such as `0000:1a:00.0`"),
    "nic.pcie_gtps": Fact("number", "pci", "speed of its PCIe link, in GT/s"),
    "nic.pcie_gtps_max": Fact("number", "pci", "that it could have"),
    "nic.pcie_width": Fact("number", "pci", "lanes of its PCIe link"),
    "nic.pcie_width_max": Fact("number", "pci", "that it could have"),
    "nic.pcie_read_request_bytes": Fact("number", "pci", "MaxReadReq of its configuration space"),
    "nic.pcie_payload_bytes": Fact("number", "pci", "MaxPayload of its configuration space"),
    "nic.pcie_errors": Fact("number", "pci", "correctable errors that were counted (AER)"),
    "nic.numa_node": Fact("number", "pci", "it is near to; -1 for none"),
    "nic.irqs": Fact("number", "interrupts", "interrupts of the device"),
    "nic.irqs_off_node": Fact("number", "interrupts", "those that may go to no processor of its NUMA node"),
    "nic.is_up": Fact("flag", "links", "whether it is set up"),
    "nic.has_carrier": Fact("flag", "links", "whether its link is up"),
    "nic.carrier_changes": Fact("number", "links", "how often that changed since boot"),
    "nic.mtu_bytes": Fact("number", "links", "largest IP packet"),
    "nic.addresses": Fact("texts", "links", "of global scope, with their prefix length"),
    "nic.master": Fact("text", "links", "the interface it is a port of, such as a bond"),
    "nic.bond_mode": Fact("text", "links", "of the bond it is a port of"),
    "nic.routes": Fact("texts", "routes", "destinations by it in all tables"),
    "nic.speed_bps": Fact("number", "ethtool", "of the link"),
    "nic.duplex": Fact("text", "ethtool", "`full` or `half`"),
    "nic.autonegotiation": Fact("flag", "ethtool", "whether it is on"),
    "nic.fec": Fact("text", "ethtool", "forward error correction in use, such as `rs`"),
    "nic.pause_rx": Fact("flag", "ethtool", "whether it heeds pause frames"),
    "nic.pause_tx": Fact("flag", "ethtool", "whether it sends pause frames"),
    "nic.ring_rx": Fact("number", "ethtool", "descriptors of a receive ring"),
    "nic.ring_rx_max": Fact("number", "ethtool", "that it could have"),
    "nic.channels": Fact("number", "ethtool", "queues of either direction or both"),
    "nic.offloads": Fact("texts", "ethtool", "features that are on"),
    "nic.pfc_priorities": Fact("numbers", "dcb", "priorities with priority flow control"),
    "nic.ets_algorithms": Fact(
        "texts", "dcb", "of each traffic class: `strict`, `ets`, `cbs`", is_ordered=True
    ),
    "nic.ets_percent": Fact("numbers", "dcb", "bandwidth of each traffic class", is_ordered=True),
    "nic.priority_classes": Fact("numbers", "dcb", "traffic class of each priority", is_ordered=True),
    "nic.dscp_priorities": Fact("texts", "dcb", "priorities that DSCPs are mapped to, such as `26:3`"),
    "nic.trust": Fact("text", "dcb", "`dscp` or `pcp`: by what priorities are told"),
    "nic.ecn_receiver": Fact("numbers", "ecn", "priorities whose marks are answered by CNPs"),
    "nic.ecn_sender": Fact("numbers", "ecn", "priorities whose rate CNPs lower"),
    "nic.eswitch_mode": Fact("text", "devlink", "`legacy` or `switchdev`"),
    "nic.firmware_stored": Fact("text", "devlink", "firmware that runs after the next reset"),
    "nic.module": Fact("text", "modules", "vendor and part number of the transceiver or cable"),
    "nic.module_serial": Fact("text", "modules", "serial number of it"),
    "nic.module_temperature_c": Fact("number", "modules", "of the transceiver"),
    "nic.module_rx_power_dbm": Fact("numbers", "modules", "of each lane", is_ordered=True),
    "nic.module_tx_power_dbm": Fact("numbers", "modules", "of each lane", is_ordered=True),
    "nic.rx_errors": Fact("number", "counters", "received with errors, since boot"),
    "nic.rx_crc_errors": Fact("number", "counters", "received with a wrong checksum, since boot"),
    "nic.tx_errors": Fact("number", "counters", "not sent for errors, since boot"),
    "nic.growing_errors": Fact("texts", "counters", "counters of errors that grew while facts were read"),
    "nic.leaf": Fact(
        "text",
        "fabric",
        "name of the switch that probes find it at; in audits of the network, as what follows",
    ),
    "nic.leaf_expected": Fact(
        "text", "fabric", "where NICs like it are; its own leaf where none says otherwise"
    ),
    "nic.rail": Fact(
        "number", "fabric", "of its leaf, from 0 in the order of `cwdp fabric`, if there are rails"
    ),
    "rdma.netdev": Fact("text", "rdma", "the NIC it sends by"),
    "rdma.board": Fact("text", "rdma", "board_id, such as a PSID"),
    "rdma.firmware": Fact("text", "rdma", "fw_ver"),
    "rdma.device_type": Fact("text", "rdma", "hca_type"),
    "rdma.state": Fact("text", "rdma", "of the port, such as `ACTIVE`"),
    "rdma.physical_state": Fact("text", "rdma", "of the port, such as `LinkUp`"),
    "rdma.rate_bps": Fact("number", "rdma", "of the port"),
    "rdma.link_layer": Fact("text", "rdma", "`Ethernet` or `InfiniBand`"),
    "rdma.node_description": Fact(
        "text", "rdma", "node_desc, by which InfiniBand's switches and tools name the device"
    ),
    "rdma.lmc": Fact("number", "rdma", "lid_mask_count: an InfiniBand port owns 2 to the power of it LIDs"),
    "rdma.sm_lid": Fact("number", "rdma", "of the InfiniBand subnet manager; 0 for none"),
    "rdma.gids_v2": Fact("number", "rdma", "GIDs of RoCE v2 with a global address"),
    "rdma.roce_mode": Fact("text", "rdma", "what rdma_cm chooses, such as `RoCE v2`"),
    "rdma.roce_tos": Fact("number", "rdma", "what rdma_cm sets"),
    "rdma.traffic_class": Fact("number", "rdma", "that the device forces on all queue pairs; -1 for none"),
    "rdma.out_of_sequence": Fact("number", "rdma", "packets out of sequence, since the device was made"),
    "rdma.ack_timeouts": Fact("number", "rdma", "acknowledgements that did not come"),
    "rdma.symbol_errors": Fact("number", "rdma", "on the link"),
    "rdma.link_downed": Fact("number", "rdma", "how often the link was lost"),
    "rdma.growing_errors": Fact("texts", "rdma", "counters of errors that grew while facts were read"),
    "gpu.product": Fact("text", "gpus", "as NVML has it"),
    "gpu.uuid": Fact("text", "gpus", "as NVML has it"),
    "gpu.vbios": Fact("text", "gpus", "version"),
    "gpu.pci_address": Fact("text", "gpus", "where it is"),
    "gpu.pcie_gtps": Fact("number", "gpus", "speed of its PCIe link, in GT/s; lower while it is idle"),
    "gpu.pcie_gtps_max": Fact("number", "gpus", "that it could have here"),
    "gpu.pcie_width": Fact("number", "gpus", "lanes of its PCIe link"),
    "gpu.pcie_width_max": Fact("number", "gpus", "that it could have here"),
    "gpu.numa_node": Fact("number", "gpus", "it is near to; -1 for none"),
    "gpu.persistence": Fact("flag", "gpus", "whether its driver stays loaded"),
    "gpu.has_ecc": Fact("flag", "gpus", "whether ECC is on"),
    "gpu.ecc_uncorrected": Fact("number", "gpus", "errors that ECC did not correct, over its life"),
    "gpu.rows_pending": Fact("flag", "gpus", "whether rows wait to be remapped by a reset"),
    "gpu.rows_failed": Fact("flag", "gpus", "whether a row could not be remapped"),
    "gpu.nvlinks": Fact("number", "gpus", "NVLinks that are active"),
    "gpu.nvlinks_max": Fact("number", "gpus", "that it has"),
    "gpu.nvlink_errors": Fact("number", "gpus", "replays, recoveries and checksum errors on them"),
    "gpu.throttled_by": Fact("texts", "gpus", "what holds its clocks down, but idleness"),
    "gpu.power_limit_w": Fact("number", "gpus", "that is enforced"),
}

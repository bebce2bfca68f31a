/* SPDX-License-Identifier: Apache-2.0 */
#include "lids.h"

#include "../real.h"
#include "../table.h"

#define GOLDEN_32  0x9e3779b9u
#define MOST_PORTS 63

/* Only fields that the oldest libibverbs has, too, are filled in. */
static bool asked(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	*attr = (struct ibv_port_attr){.link_layer = IBV_LINK_LAYER_UNSPECIFIED};
	return !real_verbs()->query_port(context, port, (struct _compat_ibv_port_attr *)attr);
}

uint64_t lids_ports(struct ibv_context *context, uint8_t ports)
{
	struct ibv_port_attr attr;
	uint64_t found = 0;
	for (uint8_t port = 1; port <= ports && port <= MOST_PORTS; port++)
		if (asked(context, port, &attr) && attr.link_layer == IBV_LINK_LAYER_INFINIBAND)
			found |= 1ull << port;
	return found;
}

bool lids_of(const struct known *known, uint8_t port, struct lids *ours)
{
	struct ibv_port_attr attr;
	if (port > MOST_PORTS || !(known->mover.ib_ports >> port & 1) ||
	    !asked(known->qp->context, port, &attr) || !attr.lid || attr.lid > LIDS_LAST ||
	    attr.lmc > LIDS_MOST_LMC)
		return false;
	*ours = (struct lids){.lid = attr.lid, .lmc = attr.lmc};
	return true;
}

int lids_number(const struct lids *ours, uint32_t dlid, uint32_t lmc)
{
	if (!dlid || dlid > LIDS_LAST || lmc > LIDS_MOST_LMC)
		return -1;
	uint32_t number = dlid & ((1u << lmc) - 1);
	return number < 1u << ours->lmc ? (int)number : -1;
}

/* The same at both ends: of the queue pair at the lower LID. Numbers that follow each other, as devices give
 * them, are spread over all shares by steps of the golden ratio.
 */
static uint32_t point_between(const struct lids *ours, uint32_t qpn, uint16_t dst_lid, uint32_t dest_qpn)
{
	bool is_lower = ours->lid != dst_lid ? ours->lid < dst_lid : qpn < dest_qpn;
	uint32_t ends = ours->lid < dst_lid ? (uint32_t)ours->lid << 16 | dst_lid
					    : (uint32_t)dst_lid << 16 | ours->lid;
	return ((is_lower ? qpn : dest_qpn) + ends * 7919u) * GOLDEN_32;
}

bool lids_take(const struct lids *ours, uint32_t qpn, uint32_t dest_qpn, struct ibv_ah_attr *path)
{
	uint32_t lmc = 0;
	if (path->src_path_bits)
		return false;
	uint16_t dlid =
		table_dlid(ours->lid, path->dlid, point_between(ours, qpn, path->dlid, dest_qpn), &lmc);
	int number = lids_number(ours, dlid, lmc);
	if (number < 0 || dlid - number != path->dlid)
		return false;
	path->dlid = dlid;
	path->src_path_bits = (uint8_t)number;
	return true;
}

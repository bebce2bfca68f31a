/* SPDX-License-Identifier: Apache-2.0 */
#include "pairs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096

static struct ibv_context *contexts[MOST_CONTEXTS];
static struct ibv_pd *domains[MOST_CONTEXTS];
static struct ibv_qp *pairs[MOST_PAIRS];
static int opened, created;

struct ibv_context *context_at(int place)
{
	return contexts[place];
}

struct ibv_qp *pair_at(int place)
{
	return pairs[place];
}

int context_open(const char *device)
{
	struct ibv_context *context = lib_open(device);
	if (!context)
		return -1;
	contexts[opened] = context;
	domains[opened] = lib.alloc_pd(context);
	return opened++;
}

int context_close(int place)
{
	lib.dealloc_pd(domains[place]);
	return lib.close_device(contexts[place]);
}

int pair_create(int context, enum ibv_qp_type type, uint32_t send_wrs)
{
	struct ibv_qp_init_attr init = {.qp_type = type, .cap = {.max_send_wr = send_wrs}};
	struct ibv_qp *qp = lib.create_qp(domains[context], &init);
	if (!qp)
		return -1;
	int place = __atomic_fetch_add(&created, 1, __ATOMIC_SEQ_CST) % MOST_PAIRS;
	pairs[place] = qp;
	return place;
}

int pair_destroy(int place)
{
	return lib.destroy_qp(pairs[place]);
}

static int mask_of(const struct change *change)
{
	int mask = change->with_state ? IBV_QP_STATE : 0;
	if (change->with_path)
		mask |= IBV_QP_AV;
	if (change->with_path && change->with_state && change->state == IBV_QPS_RTR)
		mask |= IBV_QP_DEST_QPN;
	if (change->alternate)
		mask |= IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
	return mask;
}

int pair_modify(int place, const struct change *change)
{
	struct ibv_qp_attr *attr =
		mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	attr->qp_state = change->state;
	attr->dest_qp_num = change->dest_qpn;
	memcpy(attr->ah_attr.grh.dgid.raw, change->dgid, 16);
	attr->ah_attr.grh.flow_label = change->flow_label;
	attr->ah_attr.grh.sgid_index = change->sgid_index;
	attr->ah_attr.is_global = change->is_global;
	attr->ah_attr.port_num = change->port;
	attr->ah_attr.dlid = change->dlid;
	attr->ah_attr.src_path_bits = change->src_path_bits;
	attr->alt_ah_attr.dlid = change->alternate;
	attr->path_mig_state = IBV_MIG_REARM;
	mprotect(attr, PAGE, PROT_READ);
	int failed = lib.modify_qp(pairs[place], attr, mask_of(change));
	int told = errno;
	munmap(attr, PAGE);
	errno = told;
	return failed;
}

int pair_connect(int place, const uint8_t dgid[16])
{
	struct change change = {
		.with_state = true, .is_global = true, .port = 1, .sgid_index = 3, .dest_qpn = 0x77};
	memcpy(change.dgid, dgid, 16);
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		change.state = state;
		change.with_path = state == IBV_QPS_RTR;
		int failed = pair_modify(place, &change);
		if (failed)
			return failed;
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A libibverbs whose devices are none: it keeps the states of queue pairs as the kernel does, and notes every
 * call. */
#include "calls.h"
#include "data.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORTED   __attribute__((visibility("default")))
#define DEVICES    7
#define FIRST_QPN  0x100
#define MOST_PAIRS (1 << 17)
#define MOST_SGE   32
#define REFUSED_ID 1

struct pair {
	struct ibv_qp qp;
	struct ibv_qp_attr attr;
	int glances;
};

static struct ibv_device devices[DEVICES] = {{.name = "fake_0"}, {.name = "fake_1"},   {.name = "mlx5_0"},
					     {.name = "mlx5_1"}, {.name = "bnxt_re0"}, {.name = "ib_0"},
					     {.name = "ib_1"}};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t free_qpns[MOST_PAIRS], freed, next_qpn = FIRST_QPN;

static int ended(int error)
{
	if (error)
		errno = error;
	return error;
}

static void note(const char *what, const struct ibv_qp *qp, const struct ibv_qp_attr *attr, int mask,
		 int result)
{
	struct fake_call call = {.qpn = qp ? qp->qp_num : 0, .mask = mask, .result = result};
	strcpy(call.what, what);
	if (mask & IBV_QP_STATE)
		call.state = attr->qp_state;
	if (mask & IBV_QP_AV)
		call.flow_label = attr->ah_attr.grh.flow_label;
	if (mask & (IBV_QP_AV | IBV_QP_ALT_PATH)) {
		const struct ibv_ah_attr *path = mask & IBV_QP_AV ? &attr->ah_attr : &attr->alt_ah_attr;
		call.dlid = path->dlid;
		call.path_bits = path->src_path_bits;
	}
	calls_note(&call);
}

EXPORTED struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = calloc(DEVICES + 1, sizeof(*list));
	for (int i = 0; i < DEVICES; i++)
		list[i] = &devices[i];
	if (count)
		*count = DEVICES;
	return list;
}

EXPORTED void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

EXPORTED const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

/* What is posted before a request that is refused is taken. */
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	const struct ibv_qp_attr *attr = &((const struct pair *)qp)->attr;
	struct fake_call call = {.what = "post_send", .qpn = qp->qp_num, .mask = wr->opcode};
	const struct ibv_send_wr *first = wr;
	for (; wr && !call.result; wr = wr->next) {
		call.result = wr->num_sge > MOST_SGE ? EINVAL : wr->wr_id == REFUSED_ID ? ENOMEM : 0;
		call.state += !call.result;
		if (call.result)
			*bad = wr;
	}
	calls_note(&call);
	if (!call.result && data_leads(&attr->ah_attr.grh.dgid))
		data_post(qp, &attr->ah_attr.grh.dgid, attr->dest_qp_num, first);
	return call.result;
}

/* What is written to a device's file of commands is kept where there is such a file, in a folder of the
 * device below that of FAKE_SYSFS.
 */
static int commands_of(struct ibv_device *device)
{
	char path[sizeof(device->ibdev_path) + 16];
	const char *sysfs = getenv("FAKE_SYSFS");
	if (!sysfs)
		return -1;
	snprintf(device->ibdev_path, sizeof(device->ibdev_path), "%s/%s", sysfs, device->name);
	snprintf(path, sizeof(path), "%s/commands", device->ibdev_path);
	return open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
}

EXPORTED struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context = calloc(1, sizeof(*context));
	context->ops.post_send = post_send;
	data_give(context);
	context->device = device;
	context->cmd_fd = commands_of(device);
	context->num_comp_vectors = 1;
	note("open_device", NULL, NULL, 0, 0);
	return context;
}

EXPORTED int ibv_close_device(struct ibv_context *context)
{
	if (context->cmd_fd >= 0)
		close(context->cmd_fd);
	memset(context, 0xee, sizeof(*context));
	free(context);
	note("close_device", NULL, NULL, 0, 0);
	return 0;
}

EXPORTED struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));
	pd->context = context;
	return pd;
}

EXPORTED int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

static uint32_t take_qpn(void)
{
	pthread_mutex_lock(&lock);
	uint32_t qpn = freed ? free_qpns[--freed] : next_qpn++;
	pthread_mutex_unlock(&lock);
	return qpn;
}

EXPORTED struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	if (init->cap.max_send_wr > 1024) {
		ended(ENOMEM);
		note("create_qp", NULL, NULL, 0, ENOMEM);
		return NULL;
	}
	struct pair *pair = calloc(1, sizeof(*pair));
	pair->qp.context = pd->context;
	pair->qp.pd = pd;
	pair->qp.qp_type = init->qp_type;
	pair->qp.qp_num = take_qpn();
	pair->qp.handle = ~pair->qp.qp_num;
	data_begin(&pair->qp, init->send_cq, init->recv_cq);
	note("create_qp", &pair->qp, NULL, 0, 0);
	return &pair->qp;
}

EXPORTED int ibv_destroy_qp(struct ibv_qp *qp)
{
	calls_await_destroy();
	note("destroy_qp", qp, NULL, 0, 0);
	uint32_t qpn = qp->qp_num;
	data_end(qp);
	memset(qp, 0xee, sizeof(struct pair)); /* a later use ends the process */
	free(qp);
	pthread_mutex_lock(&lock);
	free_qpns[freed++] = qpn;
	pthread_mutex_unlock(&lock);
	return 0;
}

/* ib_modify_qp_is_ok of the kernel, as far as shims are concerned. */
static bool may_go(enum ibv_qp_state from, enum ibv_qp_state to, enum ibv_qp_type type, int mask)
{
	bool has_path = type == IBV_QPT_UD || mask & IBV_QP_AV;
	switch (to) {
	case IBV_QPS_RESET:
	case IBV_QPS_ERR:
		return true;
	case IBV_QPS_INIT:
		return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
	case IBV_QPS_RTR:
		return from == IBV_QPS_INIT && has_path;
	case IBV_QPS_RTS:
		return (from == IBV_QPS_RTR || from == IBV_QPS_RTS || from == IBV_QPS_SQD) &&
		       !(mask & IBV_QP_AV);
	case IBV_QPS_SQD:
		return (from == IBV_QPS_RTS && !(mask & IBV_QP_AV)) || from == IBV_QPS_SQD;
	default:
		return false;
	}
}

static bool is_draining(const struct pair *pair)
{
	return pair->qp.state == IBV_QPS_SQD && pair->glances > 0;
}

static int refusal(const struct ibv_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;
	int error = calls_failing();
	if (error)
		return error;
	if (!may_go(qp->state, to, qp->qp_type, mask))
		return EINVAL;
	if (is_draining((const struct pair *)qp) && calls_hold_draining() && to != IBV_QPS_ERR &&
	    to != IBV_QPS_RESET)
		return EINVAL;
	if (mask & IBV_QP_AV && calls_refuse_labels() &&
	    (attr->ah_attr.grh.flow_label || attr->ah_attr.src_path_bits))
		return EINVAL;
	if (mask & IBV_QP_PATH_MIG_STATE && attr->path_mig_state == IBV_MIG_MIGRATED &&
	    ((const struct pair *)qp)->attr.path_mig_state != IBV_MIG_ARMED)
		return EINVAL;
	return 0;
}

/* Automatic path migration, as IBTA volume 1, 17.2.8.1 has its states. */
static void migrate(struct ibv_qp_attr *attr)
{
	attr->ah_attr = attr->alt_ah_attr;
	attr->path_mig_state = IBV_MIG_MIGRATED;
}

static void see_far_end(struct ibv_qp_attr *attr)
{
	if (attr->path_mig_state == IBV_MIG_REARM && calls_far_ends() != FAKE_IS_SILENT)
		attr->path_mig_state = IBV_MIG_ARMED;
	if (attr->path_mig_state == IBV_MIG_ARMED && calls_far_ends() == FAKE_HAS_MIGRATED)
		migrate(attr);
}

EXPORTED int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct pair *pair = (struct pair *)qp;
	int error = refusal(qp, attr, mask);
	note("modify_qp", qp, attr, mask, error);
	if (error)
		return ended(error);
	if (mask & IBV_QP_AV)
		pair->attr.ah_attr = attr->ah_attr;
	if (mask & IBV_QP_ALT_PATH)
		pair->attr.alt_ah_attr = attr->alt_ah_attr;
	if (mask & IBV_QP_PATH_MIG_STATE && attr->path_mig_state == IBV_MIG_MIGRATED)
		migrate(&pair->attr);
	else if (mask & IBV_QP_PATH_MIG_STATE)
		pair->attr.path_mig_state = attr->path_mig_state;
	if (mask & IBV_QP_DEST_QPN)
		pair->attr.dest_qp_num = attr->dest_qp_num;
	if (mask & IBV_QP_STATE) {
		if (attr->qp_state == IBV_QPS_SQD && qp->state != IBV_QPS_SQD)
			pair->glances = calls_glances();
		qp->state = attr->qp_state;
	}
	return 0;
}

EXPORTED int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			  struct ibv_qp_init_attr *init)
{
	struct pair *pair = (struct pair *)qp;
	see_far_end(&pair->attr);
	*attr = pair->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->sq_draining = is_draining(pair) && pair->glances--;
	memset(init, 0, sizeof(*init));
	init->qp_type = qp->qp_type;
	note("query_qp", qp, attr, mask, 0);
	return 0;
}

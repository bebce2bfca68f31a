/*
 * Calls what is traced, as its standard input says, a command a line: WHAT COUNT. Each is answered by a line,
 * the nanoseconds of a processor that a call took on average.
 */
#include "nccl.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST  65536
#define RANKS 8

static struct ibv_device device = {.name = "fake0"};
static struct ibv_context context = {.device = &device};
static struct ibv_pd pd = {.context = &context};
static struct ibv_qp *kept[MOST];
static int keeps;
static ncclComm_t comm;

static struct ibv_qp *connected(void)
{
	struct ibv_qp_init_attr init = {.cap.max_send_wr = 1};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp *qp = ibv_create_qp(&pd, &init);
	ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT);
	attr.qp_state = IBV_QPS_RTR;
	attr.dest_qp_num = qp->qp_num + 0x1000;
	attr.ah_attr.port_num = 2;
	attr.ah_attr.grh.sgid_index = 3;
	attr.ah_attr.grh.dgid = (union ibv_gid){.raw = {[10] = 0xff, 0xff, 10, 77, 2, 1}};
	ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN);
	attr.qp_state = IBV_QPS_RTS;
	ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	return qp;
}

static void call_old(const char *name)
{
	int (*old)(void *, void *, int) =
		(int (*)(void *, void *, int))dlvsym(RTLD_DEFAULT, name, "IBVERBS_1.0");
	if (!old)
		exit(3);
	old(NULL, NULL, 0);
}

static void *end_within(void *unused)
{
	ncclAllReduce(NULL, NULL, 666, ncclFloat32, 0, comm, NULL);
	return unused;
}

static void make_comm(int rank, int with_config)
{
	ncclUniqueId id;
	memset(id.internal, 17, sizeof(id.internal));
	if (with_config)
		ncclCommInitRankConfig(&comm, RANKS, id, rank, NULL);
	else
		ncclCommInitRank(&comm, RANKS, id, rank);
}

static void each_function(void)
{
	ncclAllGather(NULL, NULL, 1, ncclFloat64, comm, NULL);
	ncclAllReduce(NULL, NULL, 2, ncclFloat32, 0, comm, NULL);
	ncclBroadcast(NULL, NULL, 3, ncclFloat16, 3, comm, NULL);
	ncclRecv(NULL, 4, ncclInt8, 4, comm, NULL);
	ncclReduce(NULL, NULL, 5, ncclFloat32, 0, 5, comm, NULL);
	ncclReduceScatter(NULL, NULL, 6, ncclFloat32, 0, comm, NULL);
	ncclSend(NULL, 7, ncclFloat32, 7, comm, NULL);
}

static void once(const char *what, int i)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_qp_init_attr none = {0};
	pthread_t thread;
	if (!strcmp(what, "pass"))
		ibv_destroy_qp(connected());
	else if (!strcmp(what, "keep"))
		kept[keeps++ % MOST] = connected();
	else if (!strcmp(what, "drop"))
		ibv_destroy_qp(kept[--keeps]);
	else if (!strcmp(what, "modify"))
		ibv_modify_qp(kept[0], &attr, IBV_QP_STATE);
	else if (!strcmp(what, "old"))
		call_old("ibv_modify_qp"), call_old("ibv_create_qp"), call_old("ibv_destroy_qp");
	else if (!strcmp(what, "fail"))
		ibv_create_qp(&pd, &none), ncclAllReduce(NULL, NULL, 1, ncclFloat32, 0, NULL, NULL);
	else if (!strcmp(what, "init"))
		make_comm(i, 0);
	else if (!strcmp(what, "config"))
		make_comm(i, 1);
	else if (!strcmp(what, "each"))
		each_function();
	else if (!strcmp(what, "reduce"))
		ncclAllReduce(NULL, NULL, 1024, ncclFloat32, 0, comm, NULL);
	else if (!strcmp(what, "destroy"))
		ncclCommDestroy(comm);
	else if (!strcmp(what, "end") && !pthread_create(&thread, NULL, end_within, NULL))
		pthread_join(thread, NULL);
}

static double now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return 1e9 * now.tv_sec + now.tv_nsec;
}

int main(void)
{
	char what[16];
	int count, i;
	double began_ns;
	while (scanf("%15s %d", what, &count) == 2) {
		began_ns = now_ns();
		for (i = 0; i < count; i++)
			once(what, i);
		printf("%.1f\n", (now_ns() - began_ns) / count);
		fflush(stdout);
	}
	return 0;
}

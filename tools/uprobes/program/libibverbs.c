/* As libibverbs, as far as uprobes look: three functions, each in two versions, of which programs call the
 * later ones. */
#include <infiniband/verbs.h>
#include <stdlib.h>

static uint32_t next_qpn = 0x100;

struct ibv_qp *create_1_1(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp;
	if (attr->cap.max_send_wr == 0)
		return NULL;
	qp = calloc(1, sizeof(*qp));
	qp->context = pd->context;
	qp->qp_num = next_qpn++;
	return qp;
}

int modify_1_1(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp;
	return mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_UNKNOWN;
}

int destroy_1_1(struct ibv_qp *qp)
{
	free(qp);
	return 0;
}

struct ibv_qp *create_1_0(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	(void)pd, (void)attr;
	return NULL;
}

int modify_1_0(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp, (void)attr, (void)mask;
	return -1;
}

int destroy_1_0(struct ibv_qp *qp)
{
	(void)qp;
	return -1;
}

__asm__(".symver create_1_1,ibv_create_qp@@IBVERBS_1.1");
__asm__(".symver modify_1_1,ibv_modify_qp@@IBVERBS_1.1");
__asm__(".symver destroy_1_1,ibv_destroy_qp@@IBVERBS_1.1");
__asm__(".symver create_1_0,ibv_create_qp@IBVERBS_1.0");
__asm__(".symver modify_1_0,ibv_modify_qp@IBVERBS_1.0");
__asm__(".symver destroy_1_0,ibv_destroy_qp@IBVERBS_1.0");

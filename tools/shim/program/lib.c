/* SPDX-License-Identifier: Apache-2.0 */
#include "lib.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lib lib;

const struct fake_controls *lib_controls(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	return library ? dlsym(library, FAKE_CONTROLS) : NULL;
}

#ifdef AS_NCCL

/* What ibvsymbols.cc of NCCL looks up. */
static const char *const more[] = {
	"ibv_get_async_event", "ibv_query_device",   "ibv_dereg_mr",        "ibv_destroy_cq",
	"ibv_fork_init",       "ibv_event_type_str", "ibv_ack_async_event",
};

static void *found(void *library, const char *name)
{
	void *function = dlvsym(library, name, "IBVERBS_1.1");
	if (!function) {
		fprintf(stderr, "%s: %s\n", name, dlerror());
		exit(1);
	}
	return function;
}

static void *opened(void)
{
	const char *named = getenv("NCCL_IBVERBS_LIB");
	void *library = named ? dlopen(named, RTLD_NOW) : NULL;
	if (!library)
		library = dlopen("libibverbs.so", RTLD_NOW);
	if (!library)
		library = dlopen("libibverbs.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return library;
}

void lib_find(void)
{
	void *library = opened();
	lib.get_device_list = found(library, "ibv_get_device_list");
	lib.free_device_list = found(library, "ibv_free_device_list");
	lib.get_device_name = found(library, "ibv_get_device_name");
	lib.open_device = found(library, "ibv_open_device");
	lib.close_device = found(library, "ibv_close_device");
	lib.alloc_pd = found(library, "ibv_alloc_pd");
	lib.dealloc_pd = found(library, "ibv_dealloc_pd");
	lib.query_gid = found(library, "ibv_query_gid");
	lib.query_port = found(library, "ibv_query_port");
	lib.reg_mr = found(library, "ibv_reg_mr");
	lib.create_cq = found(library, "ibv_create_cq");
	lib.create_qp = found(library, "ibv_create_qp");
	lib.modify_qp = found(library, "ibv_modify_qp");
	lib.query_qp = found(library, "ibv_query_qp");
	lib.destroy_qp = found(library, "ibv_destroy_qp");
	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
		found(library, more[i]);
}

#else

/* Called by the procedure linkage table, as programs do: LD_AUDIT sees no function whose address is taken. */
static struct ibv_context *open_device(struct ibv_device *device)
{
	return ibv_open_device(device);
}

static int close_device(struct ibv_context *context)
{
	return ibv_close_device(context);
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	return ibv_create_qp(pd, init);
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return ibv_modify_qp(qp, attr, mask);
}

static int destroy_qp(struct ibv_qp *qp)
{
	return ibv_destroy_qp(qp);
}

void lib_find(void)
{
	lib = (struct lib){
		.get_device_list = ibv_get_device_list,
		.free_device_list = ibv_free_device_list,
		.get_device_name = ibv_get_device_name,
		.open_device = open_device,
		.close_device = close_device,
		.alloc_pd = ibv_alloc_pd,
		.dealloc_pd = ibv_dealloc_pd,
		.query_gid = ibv_query_gid,
		.reg_mr = ibv_reg_mr,
		.create_cq = ibv_create_cq,
		.create_qp = create_qp,
		.modify_qp = modify_qp,
		.query_qp = ibv_query_qp,
		.destroy_qp = destroy_qp,
	};
}

#endif

struct ibv_context *lib_open(const char *name)
{
	struct ibv_context *context = NULL;
	struct ibv_device **list = lib.get_device_list(NULL);
	if (!list)
		return NULL;
	for (struct ibv_device **each = list; *each && !context; each++)
		if (!strcmp(lib.get_device_name(*each), name))
			context = lib.open_device(*each);
	lib.free_device_list(list);
	return context;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "real.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION "IBVERBS_1.1"

static struct real real;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *found(void *library, const char *name)
{
	void *function = dlvsym(library, name, VERSION);
	if (!function)
		abort();
	return function;
}

static void find(void)
{
	/* By its name, not by RTLD_NEXT: whoever loads this library by dlopen has others behind it. */
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (!library)
		abort();
	real.open_device = found(library, "ibv_open_device");
	real.close_device = found(library, "ibv_close_device");
	real.create_qp = found(library, "ibv_create_qp");
	real.modify_qp = found(library, "ibv_modify_qp");
	real.query_qp = found(library, "ibv_query_qp");
	real.destroy_qp = found(library, "ibv_destroy_qp");
	real.get_device_name = found(library, "ibv_get_device_name");
	real.query_device = found(library, "ibv_query_device");
	real.query_port = found(library, "ibv_query_port");
}

const struct real *real_verbs(void)
{
	pthread_once(&once, find);
	return &real;
}

int real_error(int returned)
{
	return returned >= 0 ? returned : errno ? errno : EIO;
}

struct search {
	const char *begins;
	char path[PATH_MAX];
};

static int is_sought(struct dl_phdr_info *info, size_t size, void *of)
{
	struct search *search = of;
	const char *slash = strrchr(info->dlpi_name, '/');
	const char *name = slash ? slash + 1 : info->dlpi_name;
	(void)size;
	if (strncmp(name, search->begins, strlen(search->begins)))
		return 0;
	snprintf(search->path, sizeof(search->path), "%s", info->dlpi_name);
	return 1;
}

/* Of a library whose file is called so and more, as vendors' are by their versions. Only of what the program
 * has loaded already: a provider stays loaded while its devices are open.
 */
static void *of_vendor(const char *begins, const char *name)
{
	struct search search = {.begins = begins};
	if (!dl_iterate_phdr(is_sought, &search))
		return NULL;
	void *library = dlopen(search.path, RTLD_NOW | RTLD_NOLOAD);
	void *function = library ? dlsym(library, name) : NULL;
	if (library)
		dlclose(library);
	return function;
}

set_sport_fn real_mlx5_set_sport(struct ibv_device *device)
{
	bool (*is_supported)(struct ibv_device *) = of_vendor("libmlx5", "mlx5dv_is_supported");
	if (!is_supported || !is_supported(device))
		return NULL;
	return (set_sport_fn)of_vendor("libmlx5", "mlx5dv_modify_qp_udp_sport");
}

set_sport_fn real_bnxt_set_sport(void)
{
	return (set_sport_fn)of_vendor("libbnxt_re", "bnxt_re_dv_modify_qp_udp_sport");
}

nccl_posted_fn real_nccl_posted(void)
{
	return (nccl_posted_fn)of_vendor("libcwdp_nccl", "cwdp_nccl_posted");
}

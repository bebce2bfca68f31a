/* SPDX-License-Identifier: Apache-2.0 */
/* For LD_AUDIT: whoever binds to one of libibverbs' functions that the shim has, however it does so, comes by
 * the shim, which lies beside this library.
 *
 * The loader keeps this library in a namespace of its own, with a libc of its own. So the shim, which must be
 * where the program is, is loaded there with the first call: before, programs that never call verbs have
 * nothing of it.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define EXPORTED       __attribute__((visibility("default")))
#define SHIM           "libcwdp_verbs.so"
#define VERBS          "libibverbs.so.1"
#define VERSION        "IBVERBS_1.1"
#define VERSION_HIDDEN 0x8000

/* Cookies of objects; those of others are addresses. */
#define IS_SHIM  1
#define IS_VERBS 2

enum function {
	OPEN_DEVICE,
	CLOSE_DEVICE,
	CREATE_QP,
	MODIFY_QP,
	DESTROY_QP,
	FUNCTIONS
};

static const char *const names[FUNCTIONS] = {"ibv_open_device", "ibv_close_device", "ibv_create_qp",
					     "ibv_modify_qp", "ibv_destroy_qp"};
static void *_Atomic real[FUNCTIONS];
static void *ours[FUNCTIONS];
static atomic_int loading; /* 0, 1 while one thread loads, 2 */
static _Atomic(const ElfW(Versym) *) versions;

static void load(void)
{
	Dl_info here;
	char path[PATH_MAX];
	if (!dladdr(names, &here))
		return;
	const char *slash = strrchr(here.dli_fname, '/');
	int folder = slash ? (int)(slash - here.dli_fname) + 1 : 0;
	snprintf(path, sizeof(path), "%.*s" SHIM, folder, here.dli_fname);
	void *shim = dlmopen(LM_ID_BASE, path, RTLD_NOW);
	for (int i = 0; shim && i < FUNCTIONS; i++)
		ours[i] = dlvsym(shim, names[i], VERSION);
}

/* Whoever comes while another thread loads does without. */
static void *target(enum function function)
{
	int expected = 0;
	if (atomic_load(&loading) != 2 && atomic_compare_exchange_strong(&loading, &expected, 1)) {
		load();
		atomic_store(&loading, 2);
	}
	void *shim = atomic_load(&loading) == 2 ? ours[function] : NULL;
	return shim ? shim : atomic_load(&real[function]);
}

static struct ibv_context *open_device(struct ibv_device *device)
{
	return ((__typeof__(ibv_open_device) *)target(OPEN_DEVICE))(device);
}

static int close_device(struct ibv_context *context)
{
	return ((__typeof__(ibv_close_device) *)target(CLOSE_DEVICE))(context);
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return ((__typeof__(ibv_create_qp) *)target(CREATE_QP))(pd, attr);
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return ((__typeof__(ibv_modify_qp) *)target(MODIFY_QP))(qp, attr, mask);
}

static int destroy_qp(struct ibv_qp *qp)
{
	return ((__typeof__(ibv_destroy_qp) *)target(DESTROY_QP))(qp);
}

static void *const instead[FUNCTIONS] = {open_device, close_device, create_qp, modify_qp, destroy_qp};

/* The loader of glibc 2.31 crashes programs when the shim is loaded from here, or when this library says that
 * it will not do. So it has a function of 2.35, where auditing was mended: older loaders say that they cannot
 * load this library, and go on without.
 */
__attribute__((used)) static void *const needed = (void *)_dl_find_object;

EXPORTED unsigned la_version(unsigned version)
{
	return version;
}

/* An entry of an object's dynamic section; addresses in it may be relocated or not. */
static ElfW(Addr) entry(const struct link_map *map, ElfW(Sxword) tag)
{
	const ElfW(Dyn) *each = map->l_ld;
	while (each && each->d_tag != DT_NULL && each->d_tag != tag)
		each++;
	return each && each->d_tag == tag ? each->d_un.d_ptr : 0;
}

static const void *place(const struct link_map *map, ElfW(Sxword) tag)
{
	ElfW(Addr) at = entry(map, tag);
	return (const void *)(at && at < map->l_addr ? at + map->l_addr : at);
}

/* By its soname, as it may be opened by other names. */
static int is_called(const struct link_map *map, const char *name)
{
	const char *strings = place(map, DT_STRTAB);
	ElfW(Addr) at = entry(map, DT_SONAME);
	return strings && at && !strcmp(strings + at, name);
}

EXPORTED unsigned la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie)
{
	if (namespace != LM_ID_BASE)
		return 0;
	if (is_called(map, SHIM)) {
		*cookie = IS_SHIM;
		return 0;
	}
	if (!is_called(map, VERBS))
		return LA_FLG_BINDFROM;
	*cookie = IS_VERBS;
	atomic_store(&versions, place(map, DT_VERSYM));
	return LA_FLG_BINDTO;
}

/* Of dlsym, glibc tells whatever was asked of the flags. Functions of the version before, IBVERBS_1.0, are
 * left as they are.
 */
EXPORTED uintptr_t la_symbind64(ElfW(Sym) * symbol, unsigned index, uintptr_t *from, uintptr_t *to,
				unsigned *flags, const char *name)
{
	(void)flags;
	const ElfW(Versym) *all = atomic_load(&versions);
	if (*from == IS_SHIM || *to != IS_VERBS || (all && all[index] & VERSION_HIDDEN))
		return symbol->st_value;
	for (int i = 0; i < FUNCTIONS; i++)
		if (!strcmp(name, names[i])) {
			atomic_store(&real[i], (void *)symbol->st_value);
			return (uintptr_t)instead[i];
		}
	return symbol->st_value;
}

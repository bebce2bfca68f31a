/* SPDX-License-Identifier: Apache-2.0 */
/* What devices and their ports say. Those that are called ib_... have InfiniBand ports, with FAKE_LMC path
 * bits; ib_0's first LID is FAKE_LID, ib_1's is 256 higher. FAKE_APM has all devices know automatic path
 * migration.
 */
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_query_port

#define EXPORTED __attribute__((visibility("default")))
#define PORTS    2
#define APART    256

static int number(const char *name)
{
	const char *said = getenv(name);
	return said ? atoi(said) : 0;
}

EXPORTED int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	memset(attr, 0, sizeof(*attr));
	attr->phys_port_cnt = PORTS;
	attr->device_cap_flags = number("FAKE_APM") ? IBV_DEVICE_AUTO_PATH_MIG : 0;
	return 0;
}

EXPORTED int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	struct ibv_port_attr *into = (struct ibv_port_attr *)attr;
	const char *name = context->device->name;
	(void)port;
	into->active_mtu = IBV_MTU_4096;
	into->link_layer = IBV_LINK_LAYER_ETHERNET;
	if (strncmp(name, "ib_", 3))
		return 0;
	into->link_layer = IBV_LINK_LAYER_INFINIBAND;
	into->lid = (uint16_t)(number("FAKE_LID") + APART * (name[3] - '0'));
	into->lmc = (uint8_t)number("FAKE_LMC");
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Tells how wire.h lies in memory: NAME OFFSET or NAME SIZE, a line each. */
#include "wire.h"

#include <stddef.h>
#include <stdio.h>

#define SIZE(name)         printf(#name " %zu\n", sizeof(struct cwdp_verbs_##name))
#define FIELD(name, field) printf(#name "." #field " %zu\n", offsetof(struct cwdp_verbs_##name, field))
#define VALUE(name)        printf(#name " %llu\n", (unsigned long long)CWDP_VERBS_##name)

int main(void)
{
	VALUE(MAGIC), VALUE(VERSION), VALUE(CHOICES), VALUE(NAME_BYTES), VALUE(GONE);
	VALUE(COUNTS), VALUE(UNCOUNTED);
	VALUE(HELLO), VALUE(TABLE), VALUE(QP_RTR), VALUE(QP_STATE), VALUE(MOVE), VALUE(MOVED), VALUE(SENT);
	VALUE(CREATE_ONLY), VALUE(MLX5DV), VALUE(BNXT), VALUE(SQD), VALUE(APM);
	printf("SOCKET %s\n", CWDP_VERBS_SOCKET);
	SIZE(table), FIELD(table, magic), FIELD(table, version), FIELD(table, number), FIELD(table, sources),
		FIELD(table, route_bits);
	SIZE(source), FIELD(source, device), FIELD(source, port), FIELD(source, gid_index), FIELD(source, gid);
	SIZE(route), FIELD(route, src), FIELD(route, dst), FIELD(route, used), FIELD(route, lmc), FIELD(route, choices),
		FIELD(route, path), FIELD(route, up_to);
	SIZE(head), SIZE(hello), SIZE(qp), SIZE(move), SIZE(moved), SIZE(sent);
	return 0;
}

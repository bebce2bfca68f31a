/* SPDX-License-Identifier: Apache-2.0 */
/* The RoCEv2 traffic generator of one host: `cwdp-roce PLAN` or `cwdp-roce --dump`. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "dump.h"
#include "host.h"
#include "packets/icrc.h"

/* No NIC waits for a processor: go before what shares the processors with this, where the system lets us. */
static void go_first(void)
{
	struct sched_param param = {.sched_priority = 1};

	sched_setscheduler(0, SCHED_RR, &param);
}

int main(int argc, char **argv)
{
	struct plan plan = {0};

	if (argc != 2) {
		fprintf(stderr, "usage: cwdp-roce PLAN | --dump\n");
		return 2;
	}
	icrc_init();
	if (strcmp(argv[1], "--dump") == 0) {
		dump_transfers();
		return 0;
	}
	plan_read(&plan, argv[1]);
	go_first();
	host_run(&plan);
	return 0;
}

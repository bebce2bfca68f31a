/* SPDX-License-Identifier: Apache-2.0 */
/* What else NCCL looks up in libibverbs: it does nothing. */

#define NOTHING(name)                                                                                        \
	__attribute__((visibility("default"))) int name(void);                                               \
	int name(void)                                                                                       \
	{                                                                                                    \
		return 0;                                                                                    \
	}

NOTHING(ibv_get_async_event)
NOTHING(ibv_ack_async_event)
NOTHING(ibv_dereg_mr)
NOTHING(ibv_create_comp_channel)
NOTHING(ibv_destroy_comp_channel)
NOTHING(ibv_destroy_cq)
NOTHING(ibv_fork_init)
NOTHING(ibv_event_type_str)

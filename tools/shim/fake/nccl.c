/* SPDX-License-Identifier: Apache-2.0 */
/* What cwdp's plug-in for NCCL is told of posts: it notes the queue pair, how many requests, of how many
 * bytes, and the last one's name.
 */
#include "fake.h"

extern const struct fake_controls fake_controls;

void cwdp_nccl_posted(uint32_t qpn, uint64_t last_wr_id, uint64_t bytes, uint32_t requests);

void cwdp_nccl_posted(uint32_t qpn, uint64_t last_wr_id, uint64_t bytes, uint32_t requests)
{
	struct fake_call call = {.what = "posted",
				 .qpn = qpn,
				 .mask = (int)requests,
				 .state = (uint32_t)bytes,
				 .flow_label = (uint32_t)last_wr_id};
	fake_controls.note(&call);
}

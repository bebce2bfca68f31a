/* SPDX-License-Identifier: Apache-2.0 */
/* What stands before ibv_post_send tells here, in the thread that posts, the work requests of each post.
 * It goes to the step under way: from NCCL's last "waits for the peer" to its "waits until it is sent", which
 * versions 4 and later of the interface tell. Without one it is nobody's.
 */
#pragma once

#include <stdint.h>

__attribute__((visibility("default"))) void cwdp_nccl_posted(uint32_t qpn, uint64_t last_wr_id,
							     uint64_t bytes, uint32_t requests);

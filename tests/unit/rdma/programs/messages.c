/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one message of each kind that a shim sends, then the fields of a MOVE that it reads. */
#include "wire.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void put(const void *message, size_t bytes)
{
	uint32_t length = (uint32_t)bytes;
	fwrite(&length, sizeof(length), 1, stdout);
	fwrite(message, bytes, 1, stdout);
}

int main(void)
{
	struct cwdp_verbs_head head = {.magic = CWDP_VERBS_MAGIC, .device = "mlx5_0", .qpn = 77, .state = 3};
	struct cwdp_verbs_hello hello = {.head = head, .version = CWDP_VERBS_VERSION, .refused = 2, .untold = 3,
					 .job = "SLURM_JOB_ID=4711"};
	struct cwdp_verbs_qp qp = {.head = head, .port = 1, .gid_index = 5, .dest_qpn = 99, .flow_label = 4242,
				   .dst = {0xfe, 0x80, [15] = 9}, .by_table = 1, .actuator = CWDP_VERBS_BNXT,
				   .count_place = 6, .lid = 0x10, .dlid = 0x21, .src_path_bits = 1};
	struct cwdp_verbs_sent sent = {.head = head, .count = 2, .place = {4, 5}, .bytes = {1ull << 40, 7}};
	struct cwdp_verbs_moved moved = {.head = head, .number = 1ull << 40, .took_ns = 12345, .error = 95,
					 .actuator = CWDP_VERBS_MLX5DV};
	struct cwdp_verbs_move move;
	hello.head.kind = CWDP_VERBS_HELLO;
	put(&hello, sizeof(hello));
	qp.head.kind = CWDP_VERBS_QP_RTR;
	put(&qp, sizeof(qp));
	head.kind = CWDP_VERBS_QP_STATE;
	put(&head, sizeof(head));
	moved.head.kind = CWDP_VERBS_MOVED;
	put(&moved, sizeof(moved));
	sent.head.kind = CWDP_VERBS_SENT;
	put(&sent, sizeof(sent));
	if (fread(&move, sizeof(move), 1, stdin) != 1 || move.head.magic != CWDP_VERBS_MAGIC ||
	    move.head.kind != CWDP_VERBS_MOVE || strcmp(move.head.device, "rxe0") || move.head.qpn != 17 ||
	    move.number != 6 || move.deadline_ns != 1ull << 50 || move.path != 50000 || move.how != CWDP_VERBS_MAY_DRAIN)
		return 1;
	return 0;
}

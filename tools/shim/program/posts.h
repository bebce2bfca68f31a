/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to send, by ibv_post_send. */
#pragma once

/* post PAIR OPCODE PART [PART ...] [/ PART ...]: one request of parts of so many bytes, or several at once;
 * one that begins with ! is refused. Answers what ibv_post_send returned, and the number of the request that
 * was refused.
 */
void post(char *rest);

/* time-post COUNT TIMES PAIR: prints how long each of so many turns of so many requests took, in ns. */
void time_post(const char *rest);

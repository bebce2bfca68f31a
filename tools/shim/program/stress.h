/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads at once, and how long calls take. */
#pragma once

/* stress THREADS MILLISECONDS DEVICE: each makes, connects and destroys queue pairs of its own, and opens and
 * closes devices. Returns how many queue pairs were destroyed, or -1 where a call failed.
 */
int stress(const char *rest);

/* time COUNT CONTEXT DGID DGIDS [LABEL]: prints how long each of so many changes from INIT to RTR took, in
 * ns; -1 for one that failed. They lead in turns to so many GIDs, whose last 32 bits count from 0, by host
 * byte order.
 */
void time_rtr(const char *rest);

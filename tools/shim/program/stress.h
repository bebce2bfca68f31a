/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads at once, and how long calls take. */
#pragma once

/* stress THREADS MILLISECONDS DEVICE: each makes, connects and destroys queue pairs of its own, and opens and
 * closes devices. Returns how many queue pairs were destroyed, or -1 where a call failed.
 */
int stress(const char *rest);

/* time COUNT CONTEXT DGID: prints how long each of so many changes from INIT to RTR took, in ns. */
void time_rtr(const char *rest);

/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks by TCP: all connect to rank 0, and stay connected, so that it is seen when one has gone. */
#pragma once

#include "options.h"

#include <stddef.h>

/* Connects. Ends the program where that takes too long, or where the others want something else. */
void meet(const struct options *options);

/* Gives every rank what each has: `all` has room for one after the other. */
void meet_gather(const void *mine, size_t bytes, void *all);

/* Ends the program where another rank has gone. */
void meet_look(void);

/* SPDX-License-Identifier: Apache-2.0 */
/* The one lock over what threads share: the table and the list of queue pairs. Nothing that may wait is done
 * under it. */
#pragma once

#include <pthread.h>

extern pthread_mutex_t guard;

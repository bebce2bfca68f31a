/* SPDX-License-Identifier: Apache-2.0 */
/* How the program that has loaded a library of cwdp's names its job. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

/* Writes the first variable that names a job, by who starts it, as NAME=VALUE; nothing where there is none.
 */
static inline void name_job(char *job, size_t bytes)
{
	static const char *const names[] = {
		"SLURM_JOB_ID",        "PBS_JOBID",  "LSB_JOBID",      "FLUX_JOB_ID",
		"TORCHELASTIC_RUN_ID", "RAY_JOB_ID", "PMIX_NAMESPACE",
	};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = secure_getenv(names[i]);
		if (value && *value) {
			snprintf(job, bytes, "%s=%s", names[i], value);
			return;
		}
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces of one size, one after the other, until they have gone on for some time.
 *
 * Usage: cwdp-allreduce BYTES SECONDS
 *
 * Rank 0 writes a line for each: when it began and when it ended, CLOCK_MONOTONIC in ns, and how many sums
 * were wrong at rank 0. A rank that waits sleeps, as those of all hosts of a lab share the processors of one
 * machine.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NS_PER_S 1000000000L
#define PAUSE_NS 50000L

static long now_ns(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * NS_PER_S + at.tv_nsec;
}

/* The first sum tells all ranks whether rank 0 wants to end. */
static void reduce(const float *given, float *sums, int count)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	MPI_Request request;
	int is_done = 0;

	MPI_Iallreduce(given, sums, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
	while (MPI_Test(&request, &is_done, MPI_STATUS_IGNORE), !is_done)
		nanosleep(&pause, NULL);
}

static long wrong(const float *sums, int count, float expected)
{
	long found = 0;

	for (int i = 1; i < count; i++)
		found += sums[i] != expected;
	return found;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);

	int rank, ranks;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 3 || atol(argv[1]) < 8 || atol(argv[1]) / 4 > 1 << 28) {
		fprintf(stderr, "usage: cwdp-allreduce BYTES SECONDS\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}

	int count = (int)(atol(argv[1]) / (long)sizeof(float));
	long end_ns = now_ns() + (long)(atof(argv[2]) * NS_PER_S);
	float *given = malloc(sizeof(float) * count), *sums = malloc(sizeof(float) * count);
	if (!given || !sums)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int i = 0; i < count; i++)
		given[i] = (float)(rank + 1);
	do {
		long began_ns = now_ns();

		given[0] = rank == 0 && began_ns >= end_ns ? 1 : 0;
		reduce(given, sums, count);
		if (rank == 0) {
			long ended_ns = now_ns(), bad = wrong(sums, count, (float)(ranks * (ranks + 1) / 2));

			printf("%ld %ld %ld\n", began_ns, ended_ns, bad);
			fflush(stdout);
		}
	} while (sums[0] < 1);
	free(given);
	free(sums);
	MPI_Finalize();
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "connection/qp.h"

#include <stdlib.h>

#include "common/fail.h"

#define PORT_STEP 16

static void add_port(struct qp *qp, uint16_t port, uint64_t at_ns)
{
	if (qp->port_total % PORT_STEP == 0) {
		size_t size = (qp->port_total + PORT_STEP) * sizeof(*qp->ports);

		qp->ports = need(realloc(qp->ports, size));
	}
	qp->port_last = qp->port_total++;
	qp->ports[qp->port_last] = (struct port_count){.port = port, .first_ns = at_ns};
}

void qp_count_port(struct qp *qp, uint16_t port, uint64_t at_ns)
{
	if (!qp->port_total || qp->ports[qp->port_last].port != port) {
		qp->port_last = 0;
		while (qp->port_last < qp->port_total && qp->ports[qp->port_last].port != port)
			qp->port_last++;
		if (qp->port_last == qp->port_total)
			add_port(qp, port, at_ns);
	}
	qp->ports[qp->port_last].packets++;
	qp->ports[qp->port_last].last_ns = at_ns;
}

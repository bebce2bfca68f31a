/* SPDX-License-Identifier: Apache-2.0 */
/* What is done with connected queue pairs by lines on standard input, until there are no more. Each is
 * answered by a line of numbers:
 *
 *   write        a message over each queue pair: how many were written, when all are done
 *   drain LABEL  each takes another flow label, its send queue drained for that, one after the other: how
 * long each took, ns states       how many are in RTS
 */
#pragma once

void told(void);

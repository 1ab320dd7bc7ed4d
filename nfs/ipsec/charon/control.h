/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The client of an instance's control socket: one JSON object per line each way (nfs/README.md). */

#ifndef CONTROL_H_
#define CONTROL_H_

#include <json-c/json.h>

#include <utils/chunk.h>

/*
 * Sends a request, a line, to the running instance among those whose sockets match a pattern of the shell, and returns the object `ok` of its
 * answer, which the caller puts; NULL, with a message, if there is none. Waits for an instance that is being migrated. `quiet`: does not wait,
 * and the message has a higher level, for requests that are repeated anyway. `kept`, if not NULL, gets the connection, which stays open: its end
 * tells the end of the instance. It stays as it is if there is none.
 */
json_object *control_ask(char *pattern, chunk_t request, bool quiet, int *kept);

#endif

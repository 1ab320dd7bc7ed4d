/* SPDX-License-Identifier: GPL-2.0-or-later */

#include "control.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <utils/debug.h>
#include <utils/utils.h>

/* For the whole of a request, in seconds. */
#define TIMEOUT 10
/* Between tries while the instance is being migrated, in milliseconds, and how many there are. */
#define PAUSE 20
#define TRIES 250
/* As in the instance. */
#define LONGEST_LINE (4 << 20)

/* Returns a connection; negative: the error. */
static int dial(char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval timeout = { .tv_sec = TIMEOUT };
	int fd, error;

	if (strlen(path) >= sizeof(address.sun_path))
	{
		return -ENAMETOOLONG;
	}
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
	{
		return -errno;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	if (connect(fd, (struct sockaddr*)&address, sizeof(address)) != 0)
	{
		error = -errno;
		close(fd);
		return error;
	}
	return fd;
}

static bool send_all(int fd, chunk_t bytes)
{
	ssize_t sent;

	while (bytes.len)
	{
		sent = send(fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
		if (sent <= 0)
		{
			return FALSE;
		}
		bytes = chunk_skip(bytes, sent);
	}
	return TRUE;
}

/* Reads a line as JSON; NULL: none came. */
static json_object *read_line(int fd)
{
	struct json_tokener *tokener = json_tokener_new();
	json_object *value = NULL;
	char buffer[4096];
	size_t total = 0;
	ssize_t got;

	while (total < LONGEST_LINE)
	{
		got = recv(fd, buffer, sizeof(buffer), 0);
		if (got <= 0)
		{
			break;
		}
		total += got;
		value = json_tokener_parse_ex(tokener, buffer, got);
		if (value || json_tokener_get_error(tokener) != json_tokener_continue)
		{
			break;
		}
	}
	json_tokener_free(tokener);
	return value;
}

/* Returns the text of an answer's error; NULL: it is no error. */
static const char *error_of(json_object *answer, char *field)
{
	json_object *error, *text;

	if (json_object_object_get_ex(answer, "error", &error) &&
		json_object_object_get_ex(error, field, &text))
	{
		return json_object_get_string(text);
	}
	return NULL;
}

/* Asks one instance; NULL, with a message, if none answers there. The connection stays open for an answer. */
static json_object *ask_one(char *path, chunk_t request, level_t level,
							int *open)
{
	json_object *answer = NULL;
	int fd;

	fd = *open = dial(path);
	if (fd < 0)
	{
		dbg(DBG_KNL, level, "%s: no network function answers: %s", path,
			strerror(-fd));
		return NULL;
	}
	if (send_all(fd, request))
	{
		answer = read_line(fd);
	}
	if (!answer)
	{
		dbg(DBG_KNL, level, "%s: the network function did not answer within "
			"%d s: %s", path, TIMEOUT, strerror(errno));
		close(fd);
	}
	return answer;
}

/*
 * Asks the instances whose sockets match, until one does what it is asked. Of the instances of a migration only the running one does; sockets of
 * ended ones may be left. NULL: none did; `moving` tells whether that may change.
 */
static json_object *ask_all(char *pattern, chunk_t request, level_t level,
							bool *moving, int *kept)
{
	json_object *answer, *ok = NULL;
	const char *code;
	glob_t found = {};
	size_t at;
	int fd;

	*moving = FALSE;
	/* Without a match, the pattern itself is the path of the message. */
	glob(pattern, GLOB_NOCHECK, NULL, &found);
	for (at = 0; at < found.gl_pathc && !ok; at++)
	{
		answer = ask_one(found.gl_pathv[at], request,
						 found.gl_pathc > 1 ? LEVEL_DIAG : level, &fd);
		if (answer && json_object_object_get_ex(answer, "ok", &ok))
		{
			ok = json_object_get(ok);
		}
		else if (answer)
		{
			code = error_of(answer, "code") ?: "";
			*moving |= streq(code, "moving") || streq(code, "not-yet");
			dbg(DBG_KNL, *moving ? LEVEL_DIAG : level,
				"%s: the network function refuses: %s", found.gl_pathv[at],
				error_of(answer, "detail") ?: "without a reason");
		}
		if (ok && kept)
		{
			*kept = fd;
		}
		else if (answer)
		{
			close(fd);
		}
		json_object_put(answer);
	}
	globfree(&found);
	return ok;
}

json_object *control_ask(char *pattern, chunk_t request, bool quiet, int *kept)
{
	level_t level = quiet ? LEVEL_DIAG : LEVEL_AUDIT;
	json_object *ok;
	bool moving;
	int tries = quiet ? 1 : TRIES;

	while (TRUE)
	{
		ok = ask_all(pattern, request, level, &moving, kept);
		if (ok || !moving || --tries == 0)
		{
			break;
		}
		usleep(PAUSE * 1000);
	}
	if (!ok)
	{
		dbg(DBG_KNL, level, "%s: no network function did what it was asked",
			pattern);
	}
	return ok;
}

/* Passes bytes between OpenFlow clients and one or two switches: the least that any process between them costs.
 *
 *   relay LISTEN SWITCH [SWITCH]
 *
 * Paths of unix sockets; one client at a time. Two switches get the same bytes. The client then sees the messages of the
 * first one, but a barrier reply or the last part of a multipart reply only when the second one has sent its own, too.
 * Nothing is decoded beyond the headers, merged, remembered or checked. Prints "ready" when it listens. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CLIENT, FIRST, SECOND, PEERS };
enum { BARRIER_REPLY = 21, MULTIPART_REPLY = 19, MORE = 1, HEADER = 8, SIZE = 16 << 20, CHUNK = 256 << 10 };

/* Bytes read from a peer. Those before `checked` may be sent on; `sent` counts them for each receiver. */
struct stream {
    uint8_t *bytes;
    size_t length, checked, sent[PEERS];
};

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int open_socket(const char *path, int listens) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (fd < 0 || (listens ? bind : connect)(fd, (struct sockaddr *)&address, sizeof address)) die(path);
    if (listens && listen(fd, 8)) die(path);
    return fd;
}

static int ends_an_answer(const uint8_t *message, size_t length) {
    return message[1] == BARRIER_REPLY || (message[1] == MULTIPART_REPLY && length >= 12 && !(message[11] & MORE));
}

/* Checks whole messages up to the next end of an answer beyond `limit` of them; returns the ends that it passed. */
static unsigned check(struct stream *from, unsigned limit) {
    unsigned ends = 0;
    while (from->length - from->checked >= HEADER) {
        const uint8_t *message = from->bytes + from->checked;
        size_t length = message[2] << 8 | message[3];
        if (length < HEADER) exit(1);
        if (from->length - from->checked < length) break;
        if (ends_an_answer(message, length)) {
            if (ends == limit) break;
            ends++;
        }
        from->checked += length;
    }
    return ends;
}

/* Reads once; returns 0 at the end of the peer's bytes. */
static int take(int fd, struct stream *from) {
    size_t room = SIZE - from->length;
    ssize_t count = read(fd, from->bytes + from->length, room < CHUNK ? room : CHUNK);
    if (count > 0) from->length += count;
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

static int give(int fd, struct stream *from, int to) {
    if (from->sent[to] == from->checked) return 1;
    ssize_t count = send(fd, from->bytes + from->sent[to], from->checked - from->sent[to], MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) from->sent[to] += count;
    return count > 0 || errno == EAGAIN || errno == EINTR;
}

/* Forgets what every receiver has. */
static void forget(struct stream *from, size_t done) {
    if (done == 0 || (done < from->length && from->length < SIZE)) return;
    memmove(from->bytes, from->bytes + done, from->length -= done);
    from->checked -= done;
    for (int to = 0; to < PEERS; to++) from->sent[to] -= done;
}

static void serve(int *fds, int switches, struct stream *streams) {
    unsigned ahead = 0; /* answers of the second switch that the first one has not given yet */
    for (int peer = 0; peer < PEERS; peer++) {
        uint8_t *bytes = streams[peer].bytes;
        streams[peer] = (struct stream){.bytes = bytes};
    }
    struct stream *down = &streams[CLIENT], *up = &streams[FIRST], *unseen = &streams[SECOND];
    for (;;) {
        struct pollfd polled[PEERS];
        for (int peer = 0; peer <= switches; peer++) {
            size_t unsent = peer == CLIENT ? up->checked - up->sent[CLIENT] : down->checked - down->sent[peer];
            short wanted = (streams[peer].length < SIZE ? POLLIN : 0) | (unsent ? POLLOUT : 0);
            polled[peer] = (struct pollfd){.fd = fds[peer], .events = wanted};
        }
        if (poll(polled, switches + 1, -1) < 0) die("poll");
        for (int peer = 0; peer <= switches; peer++)
            if (polled[peer].revents & (POLLIN | POLLHUP) && !take(fds[peer], &streams[peer])) return;
        down->checked = down->length;
        if (switches == 1) {
            up->checked = up->length;
        } else {
            ahead += check(unseen, -1);
            unseen->length -= unseen->checked;
            memmove(unseen->bytes, unseen->bytes + unseen->checked, unseen->length);
            unseen->checked = 0;
            ahead -= check(up, ahead);
        }
        for (int to = FIRST; to <= switches; to++)
            if (!give(fds[to], down, to)) return;
        if (!give(fds[CLIENT], up, CLIENT)) return;
        size_t second = switches == 1 ? down->sent[FIRST] : down->sent[SECOND];
        forget(down, down->sent[FIRST] < second ? down->sent[FIRST] : second);
        forget(up, up->sent[CLIENT]);
    }
}

int main(int count, char **arguments) {
    struct stream streams[PEERS];
    int switches = count - 2, fds[PEERS];
    if (switches < 1 || switches > 2) return fprintf(stderr, "relay LISTEN SWITCH [SWITCH]\n"), 2;
    for (int peer = 0; peer < PEERS; peer++)
        if (!(streams[peer].bytes = malloc(SIZE))) die("malloc");
    int listener = open_socket(arguments[1], 1);
    puts("ready");
    fflush(stdout);
    for (;;) {
        if ((fds[CLIENT] = accept(listener, NULL, NULL)) < 0) die("accept");
        for (int to = FIRST; to <= switches; to++) fds[to] = open_socket(arguments[1 + to], 0);
        serve(fds, switches, streams);
        for (int peer = 0; peer <= switches; peer++) close(fds[peer]);
    }
}

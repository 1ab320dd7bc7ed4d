/* Sends frames into one network namespace and, with a rate, receives them in another one.
 *
 *   wires FROM IF TO IF SIZE SECONDS RATE
 *
 * FROM and TO are files of network namespaces. RATE 0 sends as fast as possible and receives nothing: the interface counts.
 * Prints {"sent": N, "received": N, "p50_us": X, "p99_us": X, "cpu_ns": N}; the frames carry the time at which they left. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 32, FLOWS = 64, MOST = 4000000, STAMP = 42 };

static volatile int stopped;
static uint32_t *delays;
static size_t received;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int open_socket(const char *namespace, const char *interface, int protocol) {
    int file = open(namespace, O_RDONLY), one = 1, size = 8 << 20;
    if (file < 0 || setns(file, CLONE_NEWNET)) die(namespace);
    close(file);
    int fd = socket(AF_PACKET, SOCK_RAW, htons(protocol));
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = if_nametoindex(interface)};
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address)) die(interface);
    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    return fd;
}

static void *receive(void *fd) {
    static char frames[BATCH][2048];
    struct iovec io[BATCH];
    struct mmsghdr messages[BATCH] = {0};
    struct timeval wait = {.tv_usec = 100000};
    setsockopt(*(int *)fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    for (int i = 0; i < BATCH; i++) {
        io[i] = (struct iovec){frames[i], sizeof frames[i]};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &io[i], .msg_iovlen = 1};
    }
    for (;;) {
        int n = recvmmsg(*(int *)fd, messages, BATCH, MSG_WAITFORONE, NULL);
        if (n <= 0 && stopped) return NULL;
        int64_t time = now();
        for (int i = 0; i < n && received < MOST; i++) {
            int64_t stamp;
            if (messages[i].msg_len < STAMP + sizeof stamp || memcmp(frames[i], "\2\2\2\2\2\2", 6)) continue;
            memcpy(&stamp, frames[i] + STAMP, sizeof stamp);
            delays[received++] = (time - stamp) / 1000;
        }
    }
}

static void fill(uint8_t *frame, int size, int flow) {
    static const uint8_t headers[STAMP] = {2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2};
    uint32_t sum = 0;
    memset(frame, 0, size);
    memcpy(frame, headers, sizeof headers);
    frame[16] = (size - 14) >> 8, frame[17] = size - 14;
    for (int i = 14; i < 34; i += 2) sum += frame[i] << 8 | frame[i + 1];
    sum = ~((sum & 0xffff) + (sum >> 16));
    frame[24] = sum >> 8, frame[25] = sum;
    frame[34] = 4, frame[35] = flow, frame[37] = 53;
    frame[38] = (size - 34) >> 8, frame[39] = size - 34;
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    static uint8_t frames[FLOWS][2048];
    struct iovec io[BATCH];
    struct mmsghdr messages[BATCH] = {0};
    if (argc != 8) return 2;
    int size = atoi(argv[5]);
    double rate = atof(argv[7]);
    if (size < STAMP + 8 || size > 2048) return 2;

    int sink = rate > 0 ? open_socket(argv[3], argv[4], ETH_P_ALL) : -1;
    int source = open_socket(argv[1], argv[2], 0);
    pthread_t thread;
    if (rate > 0) {
        delays = malloc(MOST * sizeof *delays);
        pthread_create(&thread, NULL, receive, &sink);
    }
    for (int i = 0; i < FLOWS; i++) fill(frames[i], size, i);

    int64_t start = now(), end = start + (int64_t)(atof(argv[6]) * 1e9), time;
    uint64_t sent = 0;
    while ((time = now()) < end) {
        int batch = BATCH;
        if (rate > 0) {
            int64_t due = (time - start) / 1e9 * rate - sent;
            if (due <= 0) {
                struct timespec nap = {.tv_nsec = 20000};
                nanosleep(&nap, NULL);
                continue;
            }
            batch = due < BATCH ? due : BATCH;
        }
        for (int i = 0; i < batch; i++) {
            uint8_t *frame = frames[(sent + i) % FLOWS];
            memcpy(frame + STAMP, &time, sizeof time);
            io[i] = (struct iovec){frame, size};
            messages[i].msg_hdr = (struct msghdr){.msg_iov = &io[i], .msg_iovlen = 1};
        }
        int n = sendmmsg(source, messages, batch, 0);
        if (n > 0) sent += n;
        else if (errno != ENOBUFS && errno != EAGAIN) die("sendmmsg");
    }
    if (rate > 0) {
        stopped = 1;
        pthread_join(thread, NULL);
        qsort(delays, received, sizeof *delays, compare);
    }
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    printf("{\"sent\": %lu, \"received\": %zu, \"p50_us\": %u, \"p99_us\": %u, \"cpu_ns\": %ld}\n", (unsigned long)sent, received,
           received ? delays[received / 2] : 0, received ? delays[received * 99 / 100] : 0, cpu.tv_sec * 1000000000L + cpu.tv_nsec);
    return 0;
}

/* The peer's side of bench/flowtable: DPDK's rte_hash, lock-free, with several writers, 16-byte padded keys, bulks of 32.
 * Commands and answers, keys and their order are those of nfs/tables/examples/flowtable.rs. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_memory.h>

#define BULK 32
#define MAX_THREADS 16

struct key {
    uint32_t source, destination;
    uint16_t source_port, destination_port;
    uint8_t protocol, padding[3];
};
_Static_assert(sizeof(struct key) == 16, "rte_hash compares 16 bytes at once");

static struct rte_hash *table;
static struct key *keys, *shuffled;
static size_t key_count, stable_count;

static void die(const char *what)
{
    fprintf(stderr, "flowtable peer: %s\n", what);
    exit(1);
}

static uint64_t mix(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static struct key flow(uint64_t number)
{
    uint64_t random = mix(&number);
    return (struct key){
        .source = (uint32_t)random,
        .destination = 0xc6330000 | (uint32_t)(random >> 56),
        .source_port = (uint16_t)(random >> 32),
        .destination_port = 443,
        .protocol = 6,
    };
}

static double nanos(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

/* The table's memory is on huge pages where the kernel gives some; so is the peer's. */
static int advise_huge(const struct rte_memseg_list *list, const struct rte_memseg *segment, size_t length, void *arg)
{
    (void)list;
    (void)arg;
    /* Only a hint: without, it is slower. */
    madvise(segment->addr, length, MADV_HUGEPAGE);
    return 0;
}

static void *array(size_t count)
{
    void *memory = malloc(count * sizeof(struct key));
    if (!memory)
        die("no memory for keys");
    return memory;
}

static void make(size_t count, size_t entries)
{
    if (table) {
        rte_hash_free(table);
        free(keys);
        free(shuffled);
    }
    struct rte_hash_parameters parameters = {
        .name = "flows",
        .entries = entries,
        .key_len = sizeof(struct key),
        .hash_func = rte_hash_crc,
        .socket_id = (int)rte_socket_id(),
        .extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF | RTE_HASH_EXTRA_FLAGS_MULTI_WRITER_ADD,
    };
    struct rte_malloc_socket_stats before, after;
    rte_malloc_get_socket_stats(parameters.socket_id, &before);
    table = rte_hash_create(&parameters);
    if (!table)
        die("rte_hash_create failed: more memory (-m)?");
    rte_malloc_get_socket_stats(parameters.socket_id, &after);
    key_count = count;
    stable_count = count - count / 16;
    keys = array(count);
    shuffled = array(stable_count);
    for (size_t i = 0; i < count; i++)
        keys[i] = flow(i);
    memcpy(shuffled, keys, stable_count * sizeof *keys);
    uint64_t state = 1;
    for (size_t i = stable_count - 1; i > 0; i--) {
        size_t j = mix(&state) % (i + 1);
        struct key key = shuffled[i];
        shuffled[i] = shuffled[j];
        shuffled[j] = key;
    }
    printf("%zu\n", after.heap_allocsz_bytes - before.heap_allocsz_bytes);
}

struct work {
    size_t begin, end;
    unsigned millis;
    int registered;
    double result;
    uint64_t found, looked_up;
};

static void add(const struct key *key)
{
    if (rte_hash_add_key_data(table, key, (void *)(uintptr_t)key->source_port) < 0)
        die("the table is full");
}

static void *fill(void *argument)
{
    struct work *work = argument;
    if (rte_thread_register())
        die("rte_thread_register failed");
    double begin = nanos(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = work->begin; i < work->end; i++)
        add(&keys[i]);
    work->result = (work->end - work->begin) * 1e3 / (nanos(CLOCK_THREAD_CPUTIME_ID) - begin);
    rte_thread_unregister();
    return NULL;
}

static inline uint64_t look_up_bulk(const struct key *bulk)
{
    const void *pointers[BULK];
    void *data[BULK];
    uint64_t hits, right = 0;
    for (int i = 0; i < BULK; i++)
        pointers[i] = &bulk[i];
    if (rte_hash_lookup_bulk_data(table, pointers, BULK, &hits, data) < 0)
        die("rte_hash_lookup_bulk_data failed");
    for (int i = 0; i < BULK; i++)
        right += (hits >> i & 1) && (uintptr_t)data[i] == bulk[i].source_port;
    return right;
}

static void *look_up(void *argument)
{
    struct work *work = argument;
    size_t at = work->begin;
    double deadline = nanos(CLOCK_MONOTONIC) + work->millis * 1e6;
    double begin = nanos(CLOCK_THREAD_CPUTIME_ID);
    while (nanos(CLOCK_MONOTONIC) < deadline) {
        for (int i = 0; i < 64; i++, at += BULK) {
            if (at + BULK > stable_count)
                at = 0;
            work->found += look_up_bulk(shuffled + at);
            work->looked_up += BULK;
        }
    }
    work->result = (nanos(CLOCK_THREAD_CPUTIME_ID) - begin) / work->looked_up;
    return NULL;
}

static uint64_t replace(const struct key *bulk)
{
    int32_t positions[BULK];
    for (int i = 0; i < BULK; i++)
        positions[i] = rte_hash_del_key(table, &bulk[i]);
    for (int i = 0; i < BULK; i++)
        if (positions[i] >= 0)
            rte_hash_free_key_with_position(table, positions[i]);
    for (int i = 0; i < BULK; i++)
        add(&bulk[i]);
    return 2 * BULK;
}

static atomic_bool stop;

static void *write_keys(void *argument)
{
    struct work *work = argument;
    uint64_t written = 0;
    if (rte_thread_register())
        die("rte_thread_register failed");
    double begin = nanos(CLOCK_THREAD_CPUTIME_ID);
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        for (size_t i = stable_count; i + BULK <= key_count && !atomic_load_explicit(&stop, memory_order_relaxed); i += BULK)
            written += replace(keys + i);
    work->result = written * 1e3 / (nanos(CLOCK_THREAD_CPUTIME_ID) - begin);
    rte_thread_unregister();
    return NULL;
}

static void on_threads(unsigned threads, void *(*function)(void *), struct work *work)
{
    pthread_t running[MAX_THREADS];
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&running[i], NULL, function, &work[i]))
            die("pthread_create failed");
    for (unsigned i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
}

static void fill_all(unsigned threads)
{
    struct work work[MAX_THREADS] = {0};
    double rate = 0;
    rte_hash_reset(table);
    for (unsigned i = 0; i < threads; i++) {
        work[i].begin = key_count * i / threads;
        work[i].end = key_count * (i + 1) / threads;
    }
    on_threads(threads, fill, work);
    for (unsigned i = 0; i < threads; i++)
        rate += work[i].result;
    printf("%f %d\n", rate, rte_hash_count(table));
}

static void look_up_all(unsigned threads, unsigned millis)
{
    struct work work[MAX_THREADS] = {0};
    double result = 0;
    uint64_t found = 0, looked_up = 0;
    for (unsigned i = 0; i < threads; i++)
        work[i] = (struct work){.begin = stable_count * i / threads, .millis = millis};
    on_threads(threads, look_up, work);
    for (unsigned i = 0; i < threads; i++) {
        result += work[i].result / threads;
        found += work[i].found;
        looked_up += work[i].looked_up;
    }
    printf("%f %lu %lu\n", result, found, looked_up);
}

static void beside(unsigned millis)
{
    struct work reader = {.millis = millis}, writer = {0};
    pthread_t thread;
    atomic_store(&stop, false);
    if (pthread_create(&thread, NULL, write_keys, &writer))
        die("pthread_create failed");
    look_up(&reader);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    printf("%f %lu %lu %f\n", reader.result, reader.found, reader.looked_up, writer.result);
}

static void mixed(unsigned millis)
{
    size_t at = 0, changing = stable_count;
    uint64_t found = 0, looked_up = 0, operations = 0;
    double deadline = nanos(CLOCK_MONOTONIC) + millis * 1e6;
    double begin = nanos(CLOCK_THREAD_CPUTIME_ID);
    while (nanos(CLOCK_MONOTONIC) < deadline) {
        for (int i = 0; i < 9; i++, at += BULK) {
            if (at + BULK > stable_count)
                at = 0;
            found += look_up_bulk(shuffled + at);
            looked_up += BULK;
        }
        if (changing + BULK > key_count)
            changing = stable_count;
        operations += replace(keys + changing);
        changing += BULK;
    }
    operations += looked_up;
    printf("%f %lu %lu\n", (nanos(CLOCK_THREAD_CPUTIME_ID) - begin) / operations, found, looked_up);
}

int main(int argc, char **argv)
{
    char line[128];
    unsigned long a, b;
    if (rte_eal_init(argc, argv) < 0)
        die("rte_eal_init failed");
    rte_memseg_contig_walk(advise_huge, NULL);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "keys %lu %lu", &a, &b) == 2)
            make(a, b);
        else if (sscanf(line, "fill %lu", &a) == 1)
            fill_all(a);
        else if (sscanf(line, "lookup %lu %lu", &a, &b) == 2)
            look_up_all(a, b);
        else if (sscanf(line, "beside %lu", &a) == 1)
            beside(a);
        else if (sscanf(line, "mixed %lu", &a) == 1)
            mixed(a);
        else
            die("unknown command");
        fflush(stdout);
    }
    return 0;
}

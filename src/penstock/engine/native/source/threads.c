#define _GNU_SOURCE
#include "threads.h"

#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "simd.h"

#define SPINS 4000 /* of some ten nanoseconds each: longer than a barrier between two threads takes */

static void sleep_while(Pool *pool, _Atomic int32_t *word, int32_t value) {
    for (int spin = 0; spin < SPINS; spin++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value) return;
        relax();
    }
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(word) == value) syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void change(Pool *pool, _Atomic int32_t *word) {
    atomic_fetch_add(word, 1);
    if (atomic_load(&pool->sleepers)) syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void pool_meet(Pool *pool) {
    if (pool->threads == 1) return;
    int32_t generation = atomic_load(&pool->generation);
    if (atomic_fetch_add(&pool->arrived, 1) == pool->threads - 1) {
        atomic_store(&pool->arrived, 0);
        change(pool, &pool->generation);
    } else {
        sleep_while(pool, &pool->generation, generation);
    }
}

typedef struct {
    Pool *pool;
    int thread;
} Place;

static void *live(void *argument) {
    Place place = *(Place *)argument;
    free(argument);
    Pool *pool = place.pool;
    for (int32_t step = 0;;) {
        sleep_while(pool, &pool->started, step);
        step = atomic_load(&pool->started); /* it stays while this thread works */
        if (atomic_load(&pool->ended)) return NULL;
        pool->work(pool->argument, place.thread);
        pool_meet(pool);
    }
}

EXPORT Pool *penstock_pool_open(int threads) {
    Pool *pool = calloc(1, sizeof(Pool));
    if (pool == NULL) return NULL;
    pool->threads = 1;
    pool->owner = getpid();
    pool->handles = calloc((size_t)threads, sizeof(pthread_t));
    if (pool->handles == NULL) {
        free(pool);
        return NULL;
    }
    /* Signals are the main thread's business. */
    sigset_t all, former;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    int opened = 1;
    for (; opened < threads; opened++) {
        Place *place = malloc(sizeof(Place));
        if (place == NULL) break;
        *place = (Place){pool, opened};
        if (pthread_create(&pool->handles[opened], NULL, live, place) != 0) {
            free(place);
            break;
        }
    }
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    /* Where the system gives fewer, fewer have to do. */
    pool->threads = opened;
    return pool;
}

/* A forked process has the memory but none of the threads: it computes alone. */
static void count_threads(Pool *pool) {
    if (pool->threads > 1 && pool->owner != getpid()) pool->threads = 1;
}

void pool_run(Pool *pool, Work work, void *argument) {
    count_threads(pool);
    pool->work = work;
    pool->argument = argument;
    if (pool->threads > 1) change(pool, &pool->started);
    work(argument, 0);
    pool_meet(pool);
}

EXPORT void penstock_pool_close(Pool *pool) {
    count_threads(pool);
    atomic_store(&pool->ended, 1);
    change(pool, &pool->started);
    for (int thread = 1; thread < pool->threads; thread++) pthread_join(pool->handles[thread], NULL);
    free(pool->handles);
    free(pool);
}

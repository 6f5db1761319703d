#define _GNU_SOURCE
#include "threads.h"

#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "simd.h"

#define SPINS 3000 /* of some ten nanoseconds each: longer than threads that run need for one another */
#define PIECE_BITS 20
#define PIECES ((1u << PIECE_BITS) - 1u)

static void futex_wait(_Atomic int32_t *word, int32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic int32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Do pieces of this round as long as there are any. */
static void take(Pool *pool, int thread) {
    for (;;) {
        uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
        unsigned next = (unsigned)(ticket >> PIECE_BITS) & PIECES, count = (unsigned)ticket & PIECES;
        if (next >= count) return;
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket + (1u << PIECE_BITS))) continue;
        /* The round cannot end before this piece is done: what it says to do stays as it is. */
        pool->work(pool->argument, (int)next, thread);
        if (atomic_fetch_sub(&pool->left, 1) == 1 && atomic_load(&pool->waits)) futex_wake(&pool->left);
    }
}

typedef struct {
    Pool *pool;
    int thread;
} Place;

static int has_work(Pool *pool) {
    uint64_t ticket = atomic_load(&pool->ticket);
    return ((unsigned)(ticket >> PIECE_BITS) & PIECES) < ((unsigned)ticket & PIECES) ||
           atomic_load(&pool->ended);
}

static void *live(void *argument) {
    Place place = *(Place *)argument;
    free(argument);
    Pool *pool = place.pool;
    while (!atomic_load(&pool->ended)) {
        take(pool, place.thread);
        for (int spin = 0; spin < SPINS && !has_work(pool); spin++) relax();
        if (has_work(pool)) continue;
        int32_t round = atomic_load(&pool->round);
        atomic_fetch_add(&pool->sleepers, 1);
        if (!has_work(pool)) futex_wait(&pool->round, round);
        atomic_fetch_sub(&pool->sleepers, 1);
    }
    return NULL;
}

void pool_enter(Pool *pool) {
    if (pool->threads > 1 && pool->owner != getpid()) pool->threads = 1;
}

void pool_each(Pool *pool, int pieces, Work work, void *argument) {
    if (pieces == 1 || pool->threads == 1 || pieces > (int)PIECES) {
        for (int piece = 0; piece < pieces; piece++) work(argument, piece, 0);
        return;
    }
    pool->work = work;
    pool->argument = argument;
    atomic_store(&pool->left, pieces);
    /* First the work, then the round: who sees no work yet cannot fall asleep in the new round. */
    uint64_t round = (uint64_t)(uint32_t)atomic_load(&pool->round) + 1;
    atomic_store(&pool->ticket, round << 2 * PIECE_BITS | (unsigned)pieces);
    atomic_fetch_add(&pool->round, 1);
    if (atomic_load(&pool->sleepers)) futex_wake(&pool->round);
    take(pool, 0);
    for (int spin = 0; spin < SPINS && atomic_load(&pool->left); spin++) relax();
    for (int32_t left; (left = atomic_load(&pool->left)) != 0;) {
        atomic_store(&pool->waits, 1);
        if (atomic_load(&pool->left) == left) futex_wait(&pool->left, left);
        atomic_store(&pool->waits, 0);
    }
}

EXPORT Pool *penstock_pool_open(int threads) {
    Pool *pool = aligned_alloc(_Alignof(Pool), sizeof(Pool));
    if (pool == NULL) return NULL;
    memset(pool, 0, sizeof(Pool));
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
        pthread_setname_np(pool->handles[opened], "penstock-step"); /* for who looks at the process */
    }
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    /* Where the system gives fewer, fewer have to do. */
    pool->threads = opened;
    return pool;
}

EXPORT void penstock_pool_close(Pool *pool) {
    pool_enter(pool);
    atomic_store(&pool->ended, 1);
    atomic_fetch_add(&pool->round, 1);
    futex_wake(&pool->round);
    for (int thread = 1; thread < pool->threads; thread++) pthread_join(pool->handles[thread], NULL);
    free(pool->handles);
    free(pool);
}

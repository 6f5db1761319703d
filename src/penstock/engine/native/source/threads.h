/* A few threads that share out one piece of work after another.
 *
 * Pieces are taken one by one, by whoever is free: a thread that another program keeps from running holds
 * nobody up unless it has a piece in hand. Short waits are spent spinning, longer ones asleep in the kernel,
 * so that nothing burns while idle.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

typedef void (*Work)(void *argument, int piece, int thread);

/* What one thread polls lies apart from what another writes. */
typedef struct {
    int threads;
    pid_t owner; /* the process whose threads they are */
    pthread_t *handles;
    Work work;
    void *argument;
    _Atomic int32_t sleepers, waits, ended;
    _Atomic int32_t round; /* changes when there is something new to do: what idle threads sleep on */
    _Alignas(64) _Atomic uint64_t ticket; /* round, next piece, number of pieces */
    _Alignas(64) _Atomic int32_t left;    /* pieces of this round that are not done */
} Pool;

/* To be called before anything is computed: a forked process has the memory but none of the threads. */
void pool_enter(Pool *pool);
/* Has all pieces done, by this thread as number 0 and the others, and returns when they are. */
void pool_each(Pool *pool, int pieces, Work work, void *argument);

/* The part of `count` things that is piece number `piece` of so many. */
static inline void part_of(int count, int piece, int pieces, int *from, int *until) {
    *from = (int)((int64_t)count * piece / pieces);
    *until = (int)((int64_t)count * (piece + 1) / pieces);
}

/* Into how many pieces to cut `count` things, each of so much work, in nanoseconds or thereabouts: the same
 * number for every thread, and none so small that handing it out would be felt. */
static inline int pieces_for(const Pool *pool, int count, int64_t work) {
    if (pool->threads == 1 || count * work < 1500) return 1;
    int64_t rounds = count * work / pool->threads / 10000;
    int pieces = pool->threads * (int)(rounds < 1 ? 1 : rounds > 4 ? 4 : rounds);
    return pieces < count ? pieces : count;
}

/* A few threads that compute one step together. They meet at barriers inside it and sleep between steps:
 * a short wait is spent spinning, a longer one in the kernel, so that nothing burns while idle. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

typedef void (*Work)(void *argument, int thread);

typedef struct {
    int threads;
    pid_t owner; /* the process whose threads they are */
    Work work;
    void *argument;
    _Atomic int32_t started;    /* number of the step under way: threads wait for it to change */
    _Atomic int32_t ended;      /* the threads are to leave */
    _Atomic int32_t arrived;    /* threads at the barrier */
    _Atomic int32_t generation; /* of the barrier */
    _Atomic int32_t sleepers;
    _Atomic int64_t next;       /* piece of work, where pieces are taken one by one */
    pthread_t *handles;
} Pool;

/* All threads, this one among them as number 0, do the work once. */
void pool_run(Pool *pool, Work work, void *argument);
/* Inside the work: nobody goes on before all are here. */
void pool_meet(Pool *pool);

/* This thread's part of `count` pieces. */
static inline void pool_share(const Pool *pool, int thread, int count, int *from, int *until) {
    *from = (int)((int64_t)count * thread / pool->threads);
    *until = (int)((int64_t)count * (thread + 1) / pool->threads);
}

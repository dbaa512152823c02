/* Short vectors in the dialect that GCC and Clang share, so that one source serves every CPU.
 *
 * A type wider than the machine's registers is split by the compiler; WIDE is the widest that is
 * not. Loads and stores need no alignment. */
#ifndef FEDPN_VECTORS_H
#define FEDPN_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
#define WIDE 16
#else
#define WIDE 8
#endif

#define VECTORS(N)                                                                  \
    typedef float V##N __attribute__((vector_size(4 * N), aligned(4), may_alias));  \
    typedef int32_t I##N __attribute__((vector_size(4 * N), aligned(4), may_alias)); \
    typedef uint8_t B##N __attribute__((vector_size(N), aligned(1), may_alias));
VECTORS(8)
VECTORS(16)

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
typedef PASTE(V, WIDE) V; /* the widest, where any width will do */
typedef PASTE(I, WIDE) I;

#define INLINE static inline __attribute__((always_inline))
#define LEAST(a, b) ((a) < (b) ? (a) : (b))

/* Rows are dealt to tasks: each client's in `shares` parts of nearly equal size. Tasks are what
 * threads take; what a task computes, and the order in which the parts are summed, depend on the
 * shares alone, so that a number of threads always gives the same bits. */
typedef struct {
    int64_t client, part, first, last;
} Task;

INLINE Task task_of(int64_t index, int64_t shares, int64_t rows) {
    int64_t part = index % shares;
    Task task = {index / shares, part, part * rows / shares, (part + 1) * rows / shares};
    return task;
}

#endif

/* Convolution without padding, bias, ReLU and 2x2 max-pooling in one go, and its gradients.
 *
 * Images are held with the channel innermost, [H][W][C]. So a patch of k x k pixels is k runs of
 * k*C contiguous numbers, whatever the number of channels, and there is nothing to lay out anew:
 *
 * - forwards, a vector holds output channels and the four corners of a pooling window are four
 *   accumulators: pooling, ReLU and the choice of the corner happen in registers;
 * - backwards, only the one corner that won, and only if ReLU let it through, has a gradient:
 *   dW += g * patch and dx[patch] += g * W, with vectors along the runs.
 *
 * A last vector of a run may reach beyond it. What is read there is dropped, what is written there
 * is zero or is overwritten, and every buffer that is reached beyond ends with SLACK numbers. */
#include "vectors.h"

#define SLACK 16
#define DEAD 4 /* instead of a corner 0..3: no gradient passes */

typedef struct {
    int64_t clients, batch, channels, height, width, filters, kernel, shares, threads;
} Shape;

/* ---- forwards ---- */

/* P windows side by side in x, N filters from w [k][k*C][N]. Constants for k and c unroll it. */
#define CONVOLVE(N, P)                                                                          \
    INLINE void convolve_##N##_##P(const int64_t k, const int64_t c, int64_t line,              \
                                   int64_t filters, const float *x, const float *w,             \
                                   const float *bias, float *y, uint8_t *corner) {              \
        const int64_t run = k * c;                                                              \
        V##N sum[P][4];                                                                         \
        _Pragma("GCC unroll 4") for (int p = 0; p < P; p++)                                     \
            _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) sum[p][j] = *(const V##N *)bias; \
        for (int64_t i = 0; i < k; i++, x += line)                                              \
            _Pragma("GCC unroll 5") for (int64_t t = 0; t < run; t++, w += N) {                 \
                const V##N weight = *(const V##N *)w;                                           \
                _Pragma("GCC unroll 4") for (int p = 0; p < P; p++) {                           \
                    sum[p][0] += weight * x[t + 2 * p * c];                                     \
                    sum[p][1] += weight * x[t + (2 * p + 1) * c];                               \
                    sum[p][2] += weight * x[t + 2 * p * c + line];                              \
                    sum[p][3] += weight * x[t + (2 * p + 1) * c + line];                        \
                }                                                                               \
            }                                                                                   \
        _Pragma("GCC unroll 4") for (int p = 0; p < P; p++) {                                   \
            V##N best = sum[p][0];                                                              \
            I##N which = {0};                                                                   \
            /* the first of equals wins; NaN beats all */                                       \
            _Pragma("GCC unroll 4") for (int j = 1; j < 4; j++) {                               \
                const I##N better = (sum[p][j] > best) | (sum[p][j] != sum[p][j]);              \
                best = (V##N)((better & (I##N)sum[p][j]) | (~better & (I##N)best));             \
                which = (better & j) | (~better & which);                                       \
            }                                                                                   \
            const I##N dead = best <= 0;                                                        \
            *(V##N *)(y + p * filters) = (V##N)(~dead & (I##N)best);                            \
            *(B##N *)(corner + p * filters) =                                                   \
                __builtin_convertvector((dead & DEAD) | (~dead & which), B##N);                 \
        }                                                                                       \
    }
CONVOLVE(8, 1)
CONVOLVE(8, 2)
#if WIDE == 16
CONVOLVE(8, 4)
CONVOLVE(16, 1)
CONVOLVE(16, 2)
CONVOLVE(16, 4)
#endif

/* All windows of an image for the filters of one block; grey images have a form of their own. */
#define SWEEP(N, MOST)                                                                          \
    INLINE void walk_##N(const int64_t k, const int64_t c, const Shape *s, const float *x,      \
                         const float *w, const float *bias, float *y, uint8_t *corner) {        \
        const int64_t line = s->width * c, o = s->filters;                                      \
        const int64_t rows = (s->height - k + 1) / 2, columns = (s->width - k + 1) / 2;         \
        for (int64_t i = 0; i < rows; i++)                                                      \
            for (int64_t j = 0, step; j < columns; j += step) {                                 \
                const float *at = x + 2 * (i * line + j * c);                                   \
                float *to = y + (i * columns + j) * o;                                          \
                uint8_t *won = corner + (i * columns + j) * o;                                  \
                step = columns - j >= MOST ? MOST : columns - j >= 2 ? 2 : 1;                   \
                if (step == MOST) convolve_##N##_##MOST(k, c, line, o, at, w, bias, to, won);   \
                else if (step == 2) convolve_##N##_2(k, c, line, o, at, w, bias, to, won);      \
                else convolve_##N##_1(k, c, line, o, at, w, bias, to, won);                     \
            }                                                                                   \
    }                                                                                           \
    static void sweep_##N(const Shape *s, const float *x, const float *w, const float *bias,    \
                          float *y, uint8_t *corner) {                                          \
        if (s->channels == 1 && s->kernel == 5) walk_##N(5, 1, s, x, w, bias, y, corner);       \
        else if (s->channels == 1 && s->kernel == 3) walk_##N(3, 1, s, x, w, bias, y, corner);  \
        else walk_##N(s->kernel, s->channels, s, x, w, bias, y, corner);                        \
    }
#if WIDE == 16
SWEEP(8, 4)
SWEEP(16, 4)
#else
SWEEP(8, 2)
#endif

/* The widest block that does not waste half of itself. */
INLINE int64_t block_at(int64_t filter, int64_t filters) {
    return WIDE == 16 && filters - filter > 8 ? 16 : 8;
}

/* [O][C][k][k] -> for each block of N filters [k][k][C][N], then its N biases; zero beyond O. */
static void pack_filters(const Shape *s, const float *weight, const float *bias, float *packed) {
    const int64_t k = s->kernel, c = s->channels, taps = k * k;
    for (int64_t o = 0, n; o < s->filters; o += n) {
        n = block_at(o, s->filters);
        for (int64_t tap = 0; tap < taps; tap++)
            for (int64_t j = 0; j < c; j++)
                for (int64_t f = 0; f < n; f++)
                    *packed++ = o + f < s->filters ? weight[((o + f) * c + j) * taps + tap] : 0;
        for (int64_t f = 0; f < n; f++) *packed++ = o + f < s->filters ? bias[o + f] : 0;
    }
}

/* An image of any strides (of channel, row, column) -> [H][W][C]. */
static void pack_image(const Shape *s, const float *x, const int64_t *stride, float *to) {
    const int64_t c = s->channels;
    if (stride[0] == 1 || c == 1)
        if (stride[2] == c && stride[1] == s->width * c) {
            memcpy(to, x, sizeof(float) * s->height * s->width * c);
            return;
        }
    for (int64_t i = 0; i < s->height; i++)
        for (int64_t j = 0; j < s->width; j++)
            for (int64_t n = 0; n < c; n++)
                *to++ = x[n * stride[0] + i * stride[1] + j * stride[2]];
}

/* x of any strides (client, row, channel, height, width); weight, bias contiguous ->
 * y [N][B][H'][W'][O], corner likewise, and, where it is wanted, kept: for each client
 * [B][H][W][C] and SLACK. */
int fedpn_conv_forward(const Shape *s, const float *x, const int64_t *stride, const float *weight,
                       const float *bias, float *y, uint8_t *corner, float *kept) {
    const int64_t k = s->kernel, taps = k * k * s->channels, o = s->filters;
    const int64_t inputs = s->height * s->width * s->channels;
    const int64_t outputs = (s->height - k + 1) / 2 * ((s->width - k + 1) / 2) * o;
    int failed = 0;
#pragma omp parallel num_threads(s->threads) if (s->threads > 1)
    {
        float *filters = malloc(sizeof(float) * (o + WIDE) * (taps + 1));
        float *image = malloc(sizeof(float) * inputs);
        float *out = malloc(sizeof(float) * (outputs + SLACK));
        uint8_t *won = malloc(outputs + SLACK);
        const int ready = filters && image && out && won;
        if (!ready) failed = 1;
#pragma omp for schedule(dynamic)
        for (int64_t index = 0; index < s->clients * s->shares; index++) {
            if (!ready) continue;
            const Task task = task_of(index, s->shares, s->batch);
            pack_filters(s, weight + task.client * o * taps, bias + task.client * o, filters);
            for (int64_t b = task.first; b < task.last; b++) {
                const int64_t row = task.client * s->batch + b;
                float *in = kept ? kept + row * inputs + task.client * SLACK : image;
                pack_image(s, x + task.client * stride[0] + b * stride[1], stride + 2, in);
                /* The last block first: what it writes beyond the last filter belongs to the
                 * next window's first filters, which are written later. */
                const float *end = filters;
                for (int64_t f = 0; f < o; f += block_at(f, o)) end += block_at(f, o) * (taps + 1);
                for (int64_t f = (o - 1) / WIDE * WIDE; f >= 0; f -= WIDE) {
                    const int64_t n = block_at(f, o);
                    const float *w = end -= n * (taps + 1);
#if WIDE == 16
                    if (n == 16) sweep_16(s, in, w, w + n * taps, out + f, won + f);
                    else
#endif
                        sweep_8(s, in, w, w + n * taps, out + f, won + f);
                }
                memcpy(y + row * outputs, out, sizeof(float) * outputs);
                if (corner) memcpy(corner + row * outputs, won, outputs);
            }
        }
        free(filters), free(image), free(out), free(won);
    }
    return failed;
}

/* ---- backwards ---- */

/* The gradients of one filter on one image: where the winning patch begins, and g. */
typedef struct {
    int32_t at;
    float g;
} Hit;

/* Runs are taken in vectors of N. Two elementary moves, for K lines and NV vectors of each:
 * gather: lines of acc += sum over hits of g * lines of x;  scatter: lines of x += g * lines of w.
 * All lines go at once where registers hold them, else one by one, few vectors at a time. */
#define MOVES(N)                                                                                \
    INLINE void gather_##N(const int K, const int NV, const Hit *hits, int64_t count,           \
                           const float *x, int64_t line, float *acc, int64_t pitch) {           \
        V##N even[15], odd[15]; /* a sum waits for itself: two sums wait half as long */         \
        _Pragma("GCC unroll 15") for (int j = 0; j < K * NV; j++)                               \
            even[j] = odd[j] = (V##N){0};                                                       \
        for (int64_t h = 0; h < count; h++) {                                                   \
            const float *at = x + hits[h].at, g = hits[h].g;                                    \
            _Pragma("GCC unroll 15") for (int j = 0; j < K * NV; j++)                           \
                even[j] += g * *(const V##N *)(at + j / NV * line + j % NV * N);                \
            if (K * NV > 5 || ++h == count) continue;                                           \
            const float *next = x + hits[h].at, f = hits[h].g;                                  \
            _Pragma("GCC unroll 15") for (int j = 0; j < K * NV; j++)                           \
                odd[j] += f * *(const V##N *)(next + j / NV * line + j % NV * N);               \
        }                                                                                       \
        _Pragma("GCC unroll 15") for (int j = 0; j < K * NV; j++)                               \
            *(V##N *)(acc + j / NV * pitch + j % NV * N) += even[j] + odd[j];                   \
    }                                                                                           \
    INLINE void scatter_##N(const int K, const int NV, const Hit *hits, int64_t count,          \
                            float *x, int64_t line, const float *w, int64_t pitch) {            \
        V##N held[15];                                                                          \
        _Pragma("GCC unroll 15") for (int j = 0; j < K * NV; j++)                               \
            held[j] = *(const V##N *)(w + j / NV * pitch + j % NV * N);                         \
        for (int64_t h = 0; h < count; h++) {                                                   \
            float *at = x + hits[h].at, g = hits[h].g;                                          \
            _Pragma("GCC unroll 15") for (int j = 0; j < K * NV; j++)                           \
                *(V##N *)(at + j / NV * line + j % NV * N) += g * held[j];                      \
        }                                                                                       \
    }                                                                                           \
    static void gather_lines_##N(const Shape *s, const Hit *hits, int64_t count,                \
                                 const float *x, float *lines, int64_t pitch)                   \
        SPREAD(gather_##N, N)                                                                   \
    static void scatter_lines_##N(const Shape *s, const Hit *hits, int64_t count, float *x,     \
                                  const float *lines, int64_t pitch)                            \
        SPREAD(scatter_##N, N)
#define SPREAD(MOVE, N)                                                                         \
    {                                                                                           \
        const int64_t line = s->width * s->channels, k = s->kernel, nv = pitch / N;             \
        if (k == 5 && nv == 1) MOVE(5, 1, hits, count, x, line, lines, pitch);                  \
        else if (k == 5 && nv == 2) MOVE(5, 2, hits, count, x, line, lines, pitch);             \
        else if (k == 3 && nv == 1) MOVE(3, 1, hits, count, x, line, lines, pitch);             \
        else if (k == 3 && nv == 2) MOVE(3, 2, hits, count, x, line, lines, pitch);             \
        else if (k == 3 && nv == 3) MOVE(3, 3, hits, count, x, line, lines, pitch);             \
        else                                                                                    \
            for (int64_t i = 0; i < k; i++, x += line, lines += pitch)                          \
                for (int64_t v = 0, n; v < nv; v += n) {                                        \
                    n = nv - v >= 4 ? 4 : nv - v >= 2 ? 2 : 1;                                  \
                    if (n == 4) MOVE(1, 4, hits, count, x + v * N, 0, lines + v * N, 0);        \
                    else if (n == 2) MOVE(1, 2, hits, count, x + v * N, 0, lines + v * N, 0);   \
                    else MOVE(1, 1, hits, count, x + v * N, 0, lines + v * N, 0);               \
                }                                                                               \
    }
MOVES(8)
#if WIDE == 16
MOVES(16)
#endif

static void gather_lines(const Shape *s, const Hit *hits, int64_t count, const float *x,
                         float *lines, int64_t pitch) {
#if WIDE == 16
    if (pitch > 8) gather_lines_16(s, hits, count, x, lines, pitch);
    else
#endif
        gather_lines_8(s, hits, count, x, lines, pitch);
}

static void scatter_lines(const Shape *s, const Hit *hits, int64_t count, float *x,
                          const float *lines, int64_t pitch) {
#if WIDE == 16
    if (pitch > 8) scatter_lines_16(s, hits, count, x, lines, pitch);
    else
#endif
        scatter_lines_8(s, hits, count, x, lines, pitch);
}

/* Collects the hits of one filter, without a branch, and adds them up; gy has strides of row and
 * column. */
static int64_t collect(const Shape *s, const float *gy, const int64_t *stride,
                       const uint8_t *corner, Hit *hits, float *total) {
    const int64_t rows = (s->height - s->kernel + 1) / 2, columns = (s->width - s->kernel + 1) / 2;
    const int32_t c = s->channels, line = s->width * c;
    int64_t count = 0;
    float sum = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++, corner += s->filters) {
            const int32_t which = *corner, at = (2 * i + (which >> 1)) * line + 2 * j * c;
            const float g = gy[i * stride[0] + j * stride[1]];
            hits[count].at = at + (which & 1) * c;
            hits[count].g = g;
            count += which != DEAD;
            sum += which != DEAD ? g : 0;
        }
    *total += sum;
    return count;
}

/* [O][C][k][k] <-> [O][k][pitch], each line a run [k][C] */
static void pack_lines(const Shape *s, const float *weight, float *lines, int64_t pitch) {
    const int64_t k = s->kernel, c = s->channels;
    memset(lines, 0, sizeof(float) * s->filters * k * pitch);
    for (int64_t o = 0; o < s->filters; o++)
        for (int64_t n = 0; n < c; n++)
            for (int64_t i = 0; i < k; i++)
                for (int64_t j = 0; j < k; j++)
                    lines[(o * k + i) * pitch + j * c + n] = *weight++;
}

static void unpack_lines(const Shape *s, const float *lines, int64_t pitch, float *weight) {
    const int64_t k = s->kernel, c = s->channels;
    for (int64_t o = 0; o < s->filters; o++)
        for (int64_t n = 0; n < c; n++)
            for (int64_t i = 0; i < k; i++)
                for (int64_t j = 0; j < k; j++)
                    *weight++ = lines[(o * k + i) * pitch + j * c + n];
}

/* gy of any strides (client, row, filter, height, width), kept and corner as the forward pass
 * left them -> dweight, dbias and, where it is wanted, dx [N][B][H][W][C]. */
int fedpn_conv_backward(const Shape *s, const float *gy, const int64_t *stride, const float *kept,
                        const uint8_t *corner, const float *weight, float *dweight, float *dbias,
                        float *dx) {
    const int64_t k = s->kernel, o = s->filters, run = k * s->channels;
    const int64_t pitch = run <= 8 ? 8 : (run + WIDE - 1) / WIDE * WIDE, lines = o * k * pitch;
    const int64_t windows = (s->height - k + 1) / 2 * ((s->width - k + 1) / 2);
    const int64_t inputs = s->height * s->width * s->channels, taps = k * run;
    const int64_t tasks = s->clients * s->shares;
    int failed = 0;
    /* Each task's sums; where a client is one task, a thread's own buffer will do. */
    float *parts = s->shares > 1 ? malloc(sizeof(float) * tasks * (lines + o)) : NULL;
    if (s->shares > 1 && !parts) return 1;
#pragma omp parallel num_threads(s->threads) if (s->threads > 1)
    {
        float *own = malloc(sizeof(float) * (lines + o)), *w = malloc(sizeof(float) * lines);
        float *image = malloc(sizeof(float) * (inputs + SLACK));
        Hit *hits = malloc(sizeof(Hit) * (windows + 1));
        const int ready = own && w && image && hits;
        if (!ready) failed = 1;
#pragma omp for schedule(dynamic)
        for (int64_t index = 0; index < tasks; index++) {
            if (!ready) continue;
            const Task task = task_of(index, s->shares, s->batch);
            float *sums = parts ? parts + index * (lines + o) : own, *biases = sums + lines;
            memset(sums, 0, sizeof(float) * (lines + o));
            if (dx) pack_lines(s, weight + task.client * o * taps, w, pitch);
            for (int64_t b = task.first; b < task.last; b++) {
                const int64_t row = task.client * s->batch + b;
                const float *g = gy + task.client * stride[0] + b * stride[1];
                if (dx) memset(image, 0, sizeof(float) * (inputs + SLACK));
                for (int64_t f = 0; f < o; f++) {
                    const uint8_t *won = corner + row * windows * o + f;
                    const int64_t count =
                        collect(s, g + f * stride[2], stride + 3, won, hits, biases + f);
                    gather_lines(s, hits, count, kept + row * inputs + task.client * SLACK,
                                 sums + f * k * pitch, pitch);
                    if (dx) scatter_lines(s, hits, count, image, w + f * k * pitch, pitch);
                }
                if (dx) memcpy(dx + row * inputs, image, sizeof(float) * inputs);
            }
            if (!parts) {
                unpack_lines(s, sums, pitch, dweight + task.client * o * taps);
                memcpy(dbias + task.client * o, biases, sizeof(float) * o);
            }
        }
        free(own), free(w), free(image), free(hits);
    }
    for (int64_t n = 0; parts && n < s->clients; n++) {
        float *sums = parts + n * s->shares * (lines + o);
        for (int64_t part = 1; part < s->shares; part++)
            for (int64_t j = 0; j < lines + o; j++) sums[j] += sums[part * (lines + o) + j];
        unpack_lines(s, sums, pitch, dweight + n * o * taps);
        memcpy(dbias + n * o, sums + lines, sizeof(float) * o);
    }
    free(parts);
    return failed;
}

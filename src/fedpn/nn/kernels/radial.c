/* Log-density under stacks of radial layers, and its gradients.
 *
 * A vector holds rows, so that lengths are sums without shuffles and nothing depends on D. Rows
 * of one label share a flow: they are brought together first. Layer by layer, from data to base,
 *
 *     d = z - x0,  r = |d|,  h = 1 / (a + r),  b = s - a,  z += b h d,
 *     log|det| += (D-1) log((r + s) h) + log((r (r + 2a) + a s) h^2),
 *
 * and backwards with g = d log p / dz, from -z of the base,
 *
 *     G = g.d + (D-1) / (1 + b h),  Gh = b G + 2 a b h / (1 + a b h^2),
 *     dd = b h g - (h^2 Gh / r) d,  g += dd,  dx0 -= dd.
 *
 * The backward pass walks forwards again rather than keep every row's way from the forward pass,
 * and weighs each row's derivatives at once: parameters need no gradient per row. */
#include "vectors.h"

typedef struct {
    int64_t clients, batch, flows, layers, dim, shares, threads;
} Shape;

/* One flow, after softplus, and where its gradients go. */
typedef struct {
    const float *x0, *raw_a, *raw_s; /* [L][D], [L], [L] */
    float *a, *s, *b;                /* [L] each, b = s - a before it is rounded */
    float *dx0, *da, *ds;            /* likewise; NULL in the forward pass */
} Flow;

#define HALF_LOG_2PI 0.91893853320467274f
#define FILL(X) ((X) - (V){0}) /* a number in every place */

INLINE V square_root(V x) {
    for (int i = 0; i < WIDE; i++) x[i] = sqrtf(x[i]);
    return x;
}

INLINE float total(V x) {
    float part[WIDE];
    memcpy(part, &x, sizeof x);
    for (int width = WIDE / 2; width; width /= 2)
        for (int i = 0; i < width; i++) part[i] += part[i + width];
    return part[0];
}

/* In double: g.d and the stretch (D-1) / (1 + b h) nearly cancel where a flow fits its rows. */
typedef double W __attribute__((vector_size(8 * WIDE)));
#define DOUBLE(X) __builtin_convertvector(X, W)
#define SINGLE(X) __builtin_convertvector(X, V)

INLINE W dot(const V *a, const V *b, int64_t dim) {
    W even = {0}, odd = {0};
    for (int64_t j = 0; j + 1 < dim; j += 2) {
        even += DOUBLE(a[j]) * DOUBLE(b[j]);
        odd += DOUBLE(a[j + 1]) * DOUBLE(b[j + 1]);
    }
    if (dim % 2) even += DOUBLE(a[dim - 1]) * DOUBLE(b[dim - 1]);
    return even + odd;
}

/* x = 2^e m with m in [sqrt 1/2, sqrt 2]; log m = 2 atanh t, t = (m - 1) / (m + 1), |t| < 0.172:
 * what the series leaves out is below 1e-9. ln 2 is split so that e times its head is exact. */
INLINE V logarithm(V x) {
    const I bits = (I)x, up = ((bits & 0x7fffff) > 0x3504f3) & 1;
    const V e = __builtin_convertvector((bits >> 23) - 127 + up, V);
    const V m = (V)((bits & 0x7fffff) | ((127 - up) << 23));
    const V t = (m - 1) / (m + 1), q = t * t;
    const V series = q * (1 / 3.0f + q * (1 / 5.0f + q * (1 / 7.0f + q * (1 / 9.0f))));
    return e * 0.693359375f + (e * -2.12194440e-4f + (2 * t + 2 * t * series));
}

static void soften(const Flow *f, int64_t layers) {
    for (int64_t l = 0; l < layers; l++) {
        const double a = f->raw_a[l], s = f->raw_s[l];
        const double soft_a = a > 20 ? a : log1p(exp(a)), soft_s = s > 20 ? s : log1p(exp(s));
        f->a[l] = soft_a, f->s[l] = soft_s, f->b[l] = soft_s - soft_a;
    }
}

/* Goes from data to base; returns log p. d [L][D] and r [L] remember the way, d with a pitch of 0
 * just its last layer. */
static V walk(const Flow *f, int64_t layers, int64_t dim, V *z, V *d, int64_t pitch, V *r) {
    const float rest = dim - 1;
    V log_det = {0};
    for (int64_t l = 0; l < layers; l++, d += pitch) {
        const float a = f->a[l], s = f->s[l], *x0 = f->x0 + l * dim;
        for (int64_t j = 0; j < dim; j++) d[j] = z[j] - x0[j];
        const V length = square_root(SINGLE(dot(d, d, dim)));
        const V h = 1 / (a + length), bh = f->b[l] * h;
        for (int64_t j = 0; j < dim; j++) z[j] += bh * d[j];
        log_det += rest * logarithm((length + s) * h);
        log_det += logarithm((length * (length + 2 * a) + a * s) * h * h);
        r[l] = length;
    }
    return log_det - 0.5f * SINGLE(dot(z, z, dim)) - HALF_LOG_2PI * (float)dim;
}

/* Goes back from the base, z becoming d log p / dz; adds seen times the parameters' derivatives. */
static void walk_back(const Flow *f, int64_t layers, int64_t dim, V *z, const V *d, const V *r,
                      V seen) {
    for (int64_t j = 0; j < dim; j++) z[j] = -z[j];
    for (int64_t l = layers - 1; l >= 0; l--) {
        const float a = f->a[l], s = f->s[l], b = f->b[l];
        const V *at = d + l * dim, length = r[l], h = 1 / (a + length), hh = h * h;
        const V bend = 1 / ((length * (length + 2 * a) + a * s) * hh);
        const V tiny = FILL(1e-12f); /* at the very centre of a layer d = 0, and so is its pull */
        const V safe = (V)(((length > tiny) & (I)length) | (~(length > tiny) & (I)tiny));
        const W far = DOUBLE(length), stretch = (double)(dim - 1) * ((a + far) / (s + far));
        const V G = SINGLE(dot(z, at, dim) + stretch);
        const V Gh = b * G + 2 * a * b * h * bend, along = -hh * Gh / safe, bh = b * h;
        for (int64_t j = 0; j < dim; j++) {
            const V dd = bh * z[j] + along * at[j];
            z[j] += dd;
            f->dx0[l * dim + j] -= total(seen * dd);
        }
        const V gb = h * G + a * hh * bend, ga = b * hh * bend - hh * Gh - gb;
        f->da[l] += total(seen * ga) * (float)(1 / (1 + exp(-(double)f->raw_a[l])));
        f->ds[l] += total(seen * gb) * (float)(1 / (1 + exp(-(double)f->raw_s[l])));
    }
}

/* Up to WIDE rows, one in each place; the first stands in for those that are missing. */
static void load_rows(const float *z, const int64_t *rows, int64_t count, int64_t dim, V *to) {
    for (int64_t i = 0; i < WIDE; i++)
        for (int64_t j = 0; j < dim; j++) to[j][i] = z[rows[i < count ? i : 0] * dim + j];
}

/* Sorts rows by label: those of flow k stand in order[start[k] .. start[k + 1]]. */
static int sort_rows(const int64_t *labels, Task task, int64_t flows, int64_t *order,
                     int64_t *start) {
    memset(start, 0, sizeof(int64_t) * (flows + 2));
    for (int64_t i = task.first; i < task.last; i++) {
        if (labels[i] < 0 || labels[i] >= flows) return 2;
        start[labels[i] + 2]++;
    }
    for (int64_t k = 2; k <= flows + 1; k++) start[k] += start[k - 1];
    for (int64_t i = task.first; i < task.last; i++) order[start[labels[i] + 1]++] = i;
    return 0;
}

/* z [N][B][D]; x0, a, s of [N][K] flows. With labels [N][B], each row under its label's flow:
 * out [N][B]; without, under every flow: out [N][B][K]. Where dz is given, goes backwards with
 * the gradients seen (to all) and blind (to z alone), shaped as out. */
int fedpn_radial(const Shape *s, const float *z, const float *x0, const float *a, const float *b,
                 const int64_t *labels, float *out, const float *seen, const float *blind,
                 float *dz, float *dx0, float *da, float *ds) {
    const int64_t K = s->flows, L = s->layers, D = s->dim, size = K * L * (D + 2);
    const int64_t tasks = s->clients * s->shares, columns = labels ? 1 : K;
    int failed = 0;
    float *parts = dz && s->shares > 1 ? calloc(tasks * size, sizeof(float)) : NULL;
    if (dz && s->shares > 1 && !parts) return 1;
#pragma omp parallel num_threads(s->threads) if (s->threads > 1)
    {
        float *soft = malloc(sizeof(float) * 3 * L);
        const int64_t kept = dz ? L : 1; /* layers whose way is remembered */
        V *way = malloc(sizeof(V) * (D + kept * D + L)), *d = way + D, *r = d + kept * D;
        int64_t *order = malloc(sizeof(int64_t) * (s->batch + K + 2)), *start = order + s->batch;
        const int ready = soft && way && order;
        if (!ready) failed = 1;
#pragma omp for schedule(dynamic)
        for (int64_t index = 0; index < tasks; index++) {
            if (!ready) continue;
            const Task task = task_of(index, s->shares, s->batch);
            const int64_t n = task.client, first = n * s->batch;
            if (labels) {
                if (sort_rows(labels + first, task, K, order, start)) {
                    failed = 2;
                    continue;
                }
            } else
                for (int64_t i = task.first; i < task.last; i++) order[i - task.first] = i;
            for (int64_t k = 0; k < K; k++) {
                const int64_t from = labels ? start[k] : 0;
                const int64_t to = labels ? start[k + 1] : task.last - task.first;
                if (from == to) continue;
                const int64_t at = (n * K + k) * L;
                float *part = parts ? parts + index * size : NULL;
                const Flow flow = {x0 + at * D, a + at, b + at, soft, soft + L, soft + 2 * L,
                                   part ? part + k * L * D : dx0 + at * D,
                                   part ? part + K * L * D + k * L : da + at,
                                   part ? part + K * L * (D + 1) + k * L : ds + at};
                soften(&flow, L);
                for (int64_t i = from; i < to; i += WIDE) {
                    const int64_t *rows = order + i, count = LEAST(to - i, WIDE);
                    load_rows(z + first * D, rows, count, D, way);
                    const V log_p = walk(&flow, L, D, way, d, dz ? D : 0, r);
                    if (!dz) {
                        for (int64_t j = 0; j < count; j++)
                            out[(first + rows[j]) * columns + (labels ? 0 : k)] = log_p[j];
                        continue;
                    }
                    V weight = {0};
                    for (int64_t j = 0; j < count; j++)
                        weight[j] = seen[(first + rows[j]) * columns + (labels ? 0 : k)];
                    walk_back(&flow, L, D, way, d, r, weight);
                    for (int64_t j = 0; j < count; j++) {
                        const int64_t cell = (first + rows[j]) * columns + (labels ? 0 : k);
                        const float g = seen[cell] + blind[cell];
                        for (int64_t e = 0; e < D; e++)
                            dz[(first + rows[j]) * D + e] += g * way[e][j];
                    }
                }
            }
        }
        free(soft), free(way), free(order);
    }
    for (int64_t index = 0; parts && index < tasks; index++) {
        const float *part = parts + index * size;
        const int64_t at = index / s->shares * K * L;
        for (int64_t j = 0; j < K * L * D; j++) dx0[at * D + j] += part[j];
        for (int64_t j = 0; j < K * L; j++) da[at + j] += part[K * L * D + j];
        for (int64_t j = 0; j < K * L; j++) ds[at + j] += part[K * L * (D + 1) + j];
    }
    free(parts);
    return failed;
}

/* Linear layers: y = x W^T + b, and its grads. Weights and their grads are float32, all else is bfloat16. Processors
with AMX's tiles have no functions of this file; oneDNN multiplies there.

Shapes: T rows, K width of the input, N width of the output. Widths are multiples of 32.
*/

#include "products.h"

#ifndef __AMX_BF16__

#define PANEL (2 * TILE) /* columns that are computed at a time */
#define STAY 128  /* rows at most that stay in the cache of a core while they meet all columns */
#define CHUNK 256 /* rows whose part of a weight's grad is summed at a time: operands stay in the cache of a core */

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static void narrow_all(const float *x, int64_t count, bf16 *out) {
    for (int64_t i = 0; i < count; i += WIDTH) store16(out + i, _mm512_loadu_ps(x + i));
}

/* Weights (N, K) as a part of two right operands: the rows from `first` on of (total, K), and transposed, the columns
from `first` on of (K, total); the first may be missing. rounded (threads, 32, K): working memory. */
void pack_weights(const float *weights, int64_t N, int64_t K, int64_t first, int64_t total, bf16 *rounded, bf16 *plain,
                  bf16 *transposed, int threads) {
#pragma omp parallel for schedule(static, 1) num_threads(threads)
    for (int k = 0; k < threads; k++)
        for (int64_t n = N / DEPTH * k / threads * DEPTH; n < N / DEPTH * (k + 1) / threads * DEPTH; n += DEPTH) {
            bf16 *rows = rounded + k * DEPTH * K;
            narrow_all(weights + n * K, DEPTH * K, rows);
            pack_transposed(rows, K, DEPTH, K, transposed + (first + n) * K);
            if (plain) pack(rows, K, DEPTH, K, total, plain + (first + n) * TILE);
        }
}

/* y (rows, 32 of N) from x (rows, K) and 32 columns of the right operand. rows: known to the compiler. */
static inline __attribute__((always_inline)) void write_rows(const bf16 *x, int64_t K, const bf16 *right,
                                                             const float *bias, int rows, int64_t N, bf16 *y) {
    __m512 sums[ROWS][2];
    UNROLLED for (int i = 0; i < rows; i++)
        for (int j = 0; j < 2; j++) sums[i][j] = bias ? _mm512_loadu_ps(bias + j * TILE) : all(0);
    accumulate(x, K, 1, right, K, rows, 2, sums);
    UNROLLED for (int i = 0; i < rows; i++)
        for (int j = 0; j < 2; j++) store16(y + i * N + j * TILE, sums[i][j]);
}

/* y (T, N) = x (T, K) times `packed` (K, N), plus bias (N), which may be missing. */
void linear(const bf16 *x, const bf16 *packed, const float *bias, int64_t T, int64_t K, int64_t N, bf16 *y,
            int threads) {
    int64_t groups = (T + ROWS - 1) / ROWS, blocks = (T + STAY - 1) / STAY; /* of like size */
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads)
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t n = 0; n < N; n += PANEL) {
            const float *added = bias ? bias + n : NULL;
            int64_t t = groups * block / blocks * ROWS, end = smaller(T, groups * (block + 1) / blocks * ROWS);
            for (; t + ROWS <= end; t += ROWS)
                write_rows(x + t * K, K, packed + n * K, added, ROWS, N, y + t * N + n);
            for (; t < end; t++) write_rows(x + t * K, K, packed + n * K, added, 1, N, y + t * N + n);
        }
}

/* sums (16) += those of the columns of a tile column (depth, 16) of a right operand. */
static void add_columns(const bf16 *packed, int64_t depth, float *sums) {
    __m512 total = _mm512_loadu_ps(sums);
    __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
    for (int64_t k = 0; k < depth; k += 2)
        total = _mm512_dpbf16_ps(total, (__m512bh)_mm512_loadu_si512(packed + k * TILE), ones);
    _mm512_storeu_ps(sums, total);
}

/* 32 rows and columns of a matrix. */
typedef struct {
    const bf16 *at;
    int64_t stride;
} Block;

/* Rows t to t + 32 of x (T, width), its first 32 columns; zeros behind the last row. room (32, 32): working memory. */
static Block block_from(const bf16 *x, int64_t t, int64_t T, int64_t width, bf16 *room) {
    if (t + DEPTH <= T) return (Block){x + t * width, width};
    memset(room, 0, DEPTH * DEPTH * sizeof(bf16));
    for (int64_t i = 0; t + i < T; i++) memcpy(room + i * DEPTH, x + (t + i) * width, DEPTH * sizeof(bf16));
    return (Block){room, DEPTH};
}

/* Ask for rows of the 32 columns at x (T, width) before they are needed. They are far apart in memory, so the processor
does not foresee them. */
static void fetch(const bf16 *x, int64_t width, int64_t from, int64_t end) {
    for (int64_t t = from; t < end; t++) _mm_prefetch(x + t * width, _MM_HINT_T1);
}

/* out (M, N) float32 = the transpose of a (T, M) times b (T, N); sums_a (M) and sums_b (N): of their columns, unless
null. packed (T, N), T padded: working memory. For the threads of a parallel region together. */
static void multiply_transposed(const bf16 *a, const bf16 *b, int64_t T, int64_t M, int64_t N, bf16 *packed, float *out,
                                float *sums_a, float *sums_b, int threads) {
    bf16 left[DEPTH * CHUNK], room[DEPTH * DEPTH];
    int64_t rows = padded(T), parts = (2 * threads * DEPTH + M - 1) / M; /* of the columns of b: two tasks a thread */
    int64_t part = padded((N + parts - 1) / parts);
#pragma omp for schedule(static)
    for (int64_t t = 0; t < rows; t += DEPTH) {
        int64_t first = t / CHUNK * CHUNK, depth = smaller(CHUNK, rows - first);
        for (int64_t n = 0; n < N; n += DEPTH) {
            Block block = block_from(b + n, t, T, N, room);
            pack(block.at, block.stride, DEPTH, DEPTH, depth, packed + first * N + n * depth + (t - first) * TILE);
        }
    }
    if (sums_b) {
#pragma omp for schedule(static)
        for (int64_t n = 0; n < N; n += TILE) {
            memset(sums_b + n, 0, TILE * sizeof(float));
            for (int64_t first = 0; first < rows; first += CHUNK) {
                int64_t depth = smaller(CHUNK, rows - first);
                add_columns(packed + first * N + n * depth, depth, sums_b + n);
            }
        }
    }
#pragma omp for collapse(2) schedule(static)
    for (int64_t m = 0; m < M; m += DEPTH)
        for (int64_t from = 0; from < N; from += part) {
            float *sums = from ? NULL : sums_a;
            if (sums) memset(sums + m, 0, DEPTH * sizeof(float));
            for (int64_t first = 0; first == 0 || first < rows; first += CHUNK) {
                int64_t depth = smaller(CHUNK, rows - first);
                for (int64_t t = 0; t < depth; t += DEPTH) {
                    Block block = block_from(a + m, first + t, T, M, room);
                    pack(block.at, block.stride, DEPTH, DEPTH, depth, left + t * TILE);
                }
                for (int64_t i = 0; sums && i < DEPTH; i += TILE) add_columns(left + i * depth, depth, sums + m + i);
                int64_t next = first + CHUNK < rows ? first + CHUNK : 0, column = next ? m : m + DEPTH; /* later */
                int64_t ahead = column < M ? smaller(CHUNK, T - next) : 0;
                for (int64_t n = from; n < smaller(N, from + part); n += PANEL) {
                    int64_t done = ahead * (n - from) / part, then = ahead * (n + PANEL - from) / part;
                    fetch(a + column, M, next + done, next + then);
                    for (int64_t i = 0; i < DEPTH; i += ROWS) {
                        const bf16 *pairs = left + i / TILE * TILE * depth + i % TILE * 2;
                        const bf16 *right = packed + first * N + n * depth;
                        multiply_rows(pairs, 2, TILE, right, out + (m + i) * N + n, N, depth, first > 0, 2);
                    }
                }
            }
        }
}

/* The grads of weights (N, K) and bias (N) from dy (T, N) and x (T, K); d_bias may be missing. The narrower one is
packed as a whole. packed (T, the smaller width), T padded, turned (K, N): working memory. */
void grad_weights(const bf16 *dy, const bf16 *x, int64_t T, int64_t N, int64_t K, bf16 *packed, float *turned,
                   float *d_weights, float *d_bias, int threads) {
#pragma omp parallel num_threads(threads)
    if (K <= N) {
        multiply_transposed(dy, x, T, N, K, packed, d_weights, d_bias, NULL, threads);
    } else {
        multiply_transposed(x, dy, T, K, N, packed, turned, NULL, d_bias, threads);
#pragma omp for schedule(static)
        for (int64_t n = 0; n < N; n += TILE)
            for (int64_t k = 0; k < K; k += TILE)
                transpose((uint32_t *)turned + k * N + n, N, (uint32_t *)d_weights + n * K + k, K);
    }
}

#endif

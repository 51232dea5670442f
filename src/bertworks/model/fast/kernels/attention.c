/* Multi-head self-attention and its gradient, a head of a sequence at a time: scores and weights never leave the cache
of its core. Padding is left out.

Shapes: B sequences, L positions, T rows of a packed batch, R of them that are returned, N heads, H head size. Within a
head: K keys (the real tokens) and Q queries (those that are returned), padded with zeros to multiples of 32. Products
compute as much of the padding as their steps need.
*/

#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

#include "products.h"

/* Asks the system for the registers of AMX's tiles; 0 if this process may use them, or if the processor has none. */
int prepare(void) {
#ifdef __AMX_BF16__
    return (int)syscall(SYS_arch_prctl, 0x1023, 18);
#else
    return 0;
#endif
}

#define GROUP 128 /* queries whose grads of keys and values are summed in one product */

/* ---- a head of a sequence */

/* What a model's attention is like, as in functions.py. */
typedef struct {
    int64_t N, H;
    int64_t side;           /* -1: a query sees keys up to its own position; 1: from it on; 0: all */
    float factor;           /* of the scores */
    const float *rotations; /* (2, L, H / 2): cosines and sines of rotary positions, or null */
} AttentionShape;

typedef struct {
    int64_t L, H, wide; /* wide: H, padded */
    int64_t K, Q;
    int64_t *keys, *queries; /* (K), (Q): their positions */
    int64_t *key_of_query;   /* (Q): the number of each query among the keys */
    bf16 *k, *v, *q, *dc;    /* (L, wide) each, padded */
    bf16 *kt, *vt, *kp;      /* right operands: k and v transposed, k */
    float *scores, *grads;  /* (32, L), padded */
    bf16 *p, *ds;            /* (32, L): weights after dropout, grads of the scores */
    bf16 *pp, *dsp;          /* (GROUP, L): both as right operands */
    bf16 *qt, *dct;          /* (wide, GROUP): q and dc, transposed */
    float *dkt, *dvt;        /* (wide, L), grads of k and v */
    float *rows;             /* (32, wide) */
    float *block;            /* (16, 16) */
    uint8_t *bytes;
    int64_t n, l;            /* number of this head; K, padded */
    const int64_t *row_of, *returned_row; /* (L): of each cell, in kv and in q, -1 for none */
    void *memory;
    Tiles tiles; /* what the thread had before */
    unsigned exact;
} Head;

static void *cut(char **rest, int64_t bytes) { /* the next part of a block of memory, at a multiple of 64 */
    void *part = *rest;
    *rest += (bytes + 63) / 64 * 64;
    return part;
}

/* Memory for any head, and the settings of this thread; `end_head` gives both back. */
static Head make_head(int64_t L, int64_t H) {
    Head h = {.L = L, .H = H, .wide = padded(H)};
    int64_t l = padded(L), w = h.wide, matrix = l * w * 2, strip = DEPTH * l, group = GROUP * (w + l);
    int64_t drawn = 2 * (l + 2 * BLOCK + 64);
    int64_t bytes = 3 * L * 8 + 7 * matrix + 2 * strip * 4 + 2 * strip * 2 + 2 * group * 2 + 2 * w * l * 4 +
                    DEPTH * w * 4 + TILE * TILE * 4 + drawn + 24 * 64;
    char *rest = h.memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    h.keys = cut(&rest, L * 8), h.queries = cut(&rest, L * 8), h.key_of_query = cut(&rest, L * 8);
    bf16 **operands[] = {&h.k, &h.v, &h.q, &h.dc, &h.kt, &h.vt, &h.kp};
    for (int i = 0; i < 7; i++) *operands[i] = cut(&rest, matrix);
    h.scores = cut(&rest, strip * 4), h.grads = cut(&rest, strip * 4);
    h.p = cut(&rest, strip * 2), h.ds = cut(&rest, strip * 2);
    h.pp = cut(&rest, GROUP * l * 2), h.dsp = cut(&rest, GROUP * l * 2);
    h.qt = cut(&rest, GROUP * w * 2), h.dct = cut(&rest, GROUP * w * 2);
    h.dkt = cut(&rest, w * l * 4), h.dvt = cut(&rest, w * l * 4);
    h.rows = cut(&rest, DEPTH * w * 4), h.block = cut(&rest, TILE * TILE * 4);
    h.bytes = cut(&rest, drawn);
    h.tiles = take_tiles(), h.exact = flush_tiny();
    return h;
}

static void end_head(Head *h) {
    _mm_setcsr(h->exact);
    give_tiles_back(h->tiles);
    free(h->memory);
}

#define AHEAD 16 /* rows that are asked for before they are needed: they are far apart in memory */

/* Rows of one head, (count, H) of a matrix of the given width, padded with zeros on both sides; times `scale`. */
static void gather(const Head *h, const bf16 *x, int64_t width, const int64_t *rows, const int64_t *at, int64_t count,
                   float scale, bf16 *out) {
    for (int64_t i = 0; i < padded(count); i++, out += h->wide) {
        const bf16 *row = i < count ? x + rows[at[i]] * width : x;
        for (int64_t j = 0; j < h->wide && i + AHEAD < count; j += DEPTH)
            _mm_prefetch(x + rows[at[i + AHEAD]] * width + j, _MM_HINT_T0);
        for (int64_t j = 0; j < h->wide; j += DEPTH) { /* by itself: calls of memcpy took longer than the rows */
            int64_t used = i < count ? h->H - j : 0;
            __mmask32 mask = used < DEPTH ? (1u << used) - 1 : ~0u;
            _mm512_storeu_si512(out + j, _mm512_maskz_loadu_epi16(mask, row + j));
        }
        if (scale != 1)
            VECTOR for (int64_t j = 0; j < h->wide; j++) out[j] = narrow(widen(out[j]) * scale);
    }
}

/* Rotate rows (count, wide) by their positions, or back. A pair is element i of both halves of a row. */
static void rotate(const AttentionShape *f, int64_t L, const int64_t *at, int64_t count, bf16 *x, int64_t width,
                   float direction) {
    int64_t half = f->H / 2;
    for (int64_t i = 0; f->rotations && i < count; i++) {
        const float *cosines = f->rotations + at[i] * half, *sines = cosines + L * half;
        bf16 *first = x + i * width, *second = first + half;
        VECTOR for (int64_t j = 0; j < half; j++) {
            float a = widen(first[j]), b = widen(second[j]), sine = sines[j] * direction;
            first[j] = narrow(a * cosines[j] - b * sine);
            second[j] = narrow(b * cosines[j] + a * sine);
        }
    }
}

/* Positions, queries, keys and values of head `task` of all sequences; see `attention`. */
static void read_head(Head *h, const bf16 *q, int64_t q_width, const bf16 *kv, int64_t kv_width, const int64_t *rows,
                      const int64_t *returned, int64_t task, const AttentionShape *f) {
    int64_t D = f->N * f->H, b = task / f->N;
    h->row_of = rows + b * h->L, h->returned_row = returned + b * h->L, h->n = task % f->N;
    h->K = h->Q = 0;
    for (int64_t j = 0; j < h->L; j++) {
        if (h->row_of[j] < 0) continue;
        if (h->returned_row[j] >= 0) h->key_of_query[h->Q] = h->K, h->queries[h->Q++] = j;
        h->keys[h->K++] = j;
    }
    h->l = whole(h->K, COLUMN_STEP);
    int64_t column = h->n * f->H;
    gather(h, q + column, q_width, h->returned_row, h->queries, h->Q, 1, h->q);
    gather(h, kv + column, kv_width, h->row_of, h->keys, h->K, 1, h->k);
    gather(h, kv + D + column, kv_width, h->row_of, h->keys, h->K, 1, h->v);
    rotate(f, h->L, h->queries, h->Q, h->q, h->wide, 1);
    rotate(f, h->L, h->keys, h->K, h->k, h->wide, 1);
}

/* Minus infinity for the keys that the query which is key number `self` does not see, and behind the last key. */
static void hide(const Head *h, int64_t side, int64_t self, int64_t l, float *scores) {
    int64_t first = side > 0 ? self : 0, end = side < 0 ? self + 1 : h->K;
    for (int64_t m = 0; m < first; m++) scores[m] = -INFINITY;
    for (int64_t m = end; m < l; m++) scores[m] = -INFINITY;
}

/* Zeros in rows (count, used of width) of padding. cells (count): the flat cell of each row; without them row i is cell
i. */
static void clear_padding(bf16 *x, int64_t width, int64_t used, const int64_t *rows, const int64_t *cells,
                          int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (rows[cells ? cells[i] : i] < 0) memset(x + i * width, 0, used * sizeof(bf16));
}

/* One bit for each key that dropout keeps beside query position j. */
static void keep(const Head *h, const Dropout *d, int64_t sequence, int64_t j, uint64_t *bits) {
    int64_t span = h->keys[h->K - 1] + 1;
    const uint8_t *drawn = draw(d, sequence, (h->n * h->L + j) * h->L, span, h->bytes);
    if (span > h->K) { /* padding between the keys */
        uint8_t *of_keys = h->bytes + padded(h->L) + 2 * BLOCK + 64;
        for (int64_t i = 0; i < h->K; i++) of_keys[i] = drawn[h->keys[i]];
        drawn = of_keys;
    }
    __m512i limit = _mm512_set1_epi8((char)d->dropped);
    for (int64_t i = 0; i < h->K; i += 64)
        bits[i / 64] = _mm512_cmpge_epu8_mask(_mm512_loadu_si512(drawn + i), limit);
}

/* 16 bits from the i-th one on; all of them without dropout. */
static inline __mmask16 some(const uint64_t *bits, int64_t i) {
    return bits ? (__mmask16)(bits[i / 64] >> i % 64) : 0xffff;
}

/* ---- forward */

/* Weights of scores (l) after dropout; returns the logarithm of the sum of exponentials. */
static float softmax(float *s, int64_t l, float factor, const uint64_t *bits, bf16 *weights) {
    __m512 largest = all(-INFINITY), total = all(0);
    for (int64_t m = 0; m < l; m += WIDTH) largest = _mm512_max_ps(largest, _mm512_load_ps(s + m));
    float top = _mm512_reduce_max_ps(largest) * factor;
    for (int64_t m = 0; m < l; m += WIDTH) {
        __m512 one = exponential(_mm512_fmsub_ps(_mm512_load_ps(s + m), all(factor), all(top)));
        _mm512_store_ps(s + m, one);
        total = _mm512_add_ps(total, one);
    }
    float sum = _mm512_reduce_add_ps(total), share = 1 / sum;
    for (int64_t m = 0; m < l; m += WIDTH)
        store16(weights + m, _mm512_maskz_mul_ps(some(bits, m), _mm512_load_ps(s + m), all(share)));
    return top + logf(sum);
}

/* Queries q (R, N H) and, side by side, keys and values kv (T, 2 N H), of matrices of the given widths, to the context
(R, N H). rows, returned (B L): the row of each cell in kv and in q, -1 for none. cells (R): the flat cell of each row
of q, or null. log_sums (B, N, L): of the exponentials of each query's scores. kept (B, N, L, L / 64): bits. */
void attention(const bf16 *q, int64_t q_width, const bf16 *kv, int64_t kv_width, const int64_t *rows,
               const int64_t *returned, int64_t B, int64_t L, const AttentionShape *f, const Dropout *d,
               const int64_t *cells, int64_t R, bf16 *context, float *log_sums, uint64_t *kept, int threads) {
    int64_t N = f->N, H = f->H, D = N * H, words = (L + 63) / 64;
    clear_padding(context, D, D, returned, cells, R);
#pragma omp parallel num_threads(threads)
    {
        Head h = make_head(L, H);
#pragma omp for schedule(dynamic, N)
        for (int64_t task = 0; task < B * N; task++) {
            read_head(&h, q, q_width, kv, kv_width, rows, returned, task, f);
            int64_t l = h.l;
            pack_transposed(h.k, h.wide, l, h.wide, h.kt);
            pack(h.v, h.wide, l, h.wide, l, h.vt);
            for (int64_t start = 0; start < h.Q; start += DEPTH) {
                int64_t count = h.Q - start < DEPTH ? h.Q - start : DEPTH, strip = whole(count, ROWS);
                multiply(h.q + start * h.wide, h.wide, h.kt, h.scores, l, strip, l, h.wide, 0);
                for (int64_t i = 0; i < count; i++) {
                    int64_t j = task * L + h.queries[start + i];
                    uint64_t *bits = kept ? kept + j * words : NULL;
                    if (bits) keep(&h, d, task / N, h.queries[start + i], bits);
                    hide(&h, f->side, h.key_of_query[start + i], l, h.scores + i * l);
                    log_sums[j] = softmax(h.scores + i * l, l, f->factor, bits, h.p + i * l);
                }
                multiply(h.p, l, h.vt, h.rows, h.wide, strip, h.wide, l, 0);
                for (int64_t i = 0; i < count; i++) {
                    bf16 *out = context + h.returned_row[h.queries[start + i]] * D + h.n * H;
                    VECTOR for (int64_t m = 0; m < H; m++) out[m] = narrow(h.rows[i * h.wide + m] * d->scale);
                }
            }
        }
        end_head(&h);
    }
}

/* ---- backward */

/* (wide, K) of one head, transposed, to rows of a matrix of the given width. */
static void scatter_transposed(const Head *h, const float *x, bf16 *out, int64_t width) {
    for (int64_t first = 0; first < h->K; first += TILE)
        for (int64_t m = 0; m < h->H; m += TILE) {
            transpose((const uint32_t *)(x + m * h->l + first), h->l, (uint32_t *)h->block, TILE);
            int64_t used = h->H - m < TILE ? h->H - m : TILE, last = h->K - first < TILE ? h->K - first : TILE;
            for (int64_t i = 0; i < last; i++) {
                bf16 *row = out + h->row_of[h->keys[first + i]] * width + m;
                for (int64_t c = 0; c < used; c++) row[c] = narrow(h->block[i * TILE + c]);
            }
        }
}

/* Weights (l) after dropout from scores, and the grads of the scores from those of the weights, all from `at` on. */
static void softmax_backward(const Head *h, int64_t at, int64_t l, float factor, float log_sum, const uint64_t *bits) {
    float *s = h->scores + at, *grads = h->grads + at;
    __m512 total = all(0);
    for (int64_t m = 0; m < l; m += WIDTH) {
        __mmask16 kept = some(bits, m);
        __m512 one = exponential(_mm512_fmsub_ps(_mm512_load_ps(s + m), all(factor), all(log_sum)));
        __m512 grad = _mm512_maskz_load_ps(kept, grads + m);
        store16(h->p + at + m, _mm512_maskz_mov_ps(kept, one));
        _mm512_store_ps(s + m, one), _mm512_store_ps(grads + m, grad);
        total = _mm512_fmadd_ps(one, grad, total);
    }
    float mean = _mm512_reduce_add_ps(total);
    for (int64_t m = 0; m < l; m += WIDTH) {
        __m512 part = _mm512_mul_ps(_mm512_load_ps(s + m), _mm512_sub_ps(_mm512_load_ps(grads + m), all(mean)));
        store16(h->ds + at + m, _mm512_mul_ps(part, all(factor)));
    }
}

/* p and ds of `strip` queries from `start` on. log_sums (L), kept (L, words): those of the head. */
static void strip_backward(const Head *h, const AttentionShape *f, int64_t start, int64_t strip, const float *log_sums,
                           const uint64_t *kept) {
    int64_t w = h->wide, l = h->l, words = (h->L + 63) / 64;
    multiply(h->q + start * w, w, h->kt, h->scores, l, strip, l, w, 0);
    multiply(h->dc + start * w, w, h->vt, h->grads, l, strip, l, w, 0);
    for (int64_t i = 0; i < strip; i++) {
        if (start + i >= h->Q) {
            memset(h->p + i * l, 0, l * sizeof(bf16)), memset(h->ds + i * l, 0, l * sizeof(bf16));
            continue;
        }
        int64_t j = h->queries[start + i];
        hide(h, f->side, h->key_of_query[start + i], l, h->scores + i * l);
        softmax_backward(h, i * l, l, f->factor, log_sums[j], kept ? kept + j * words : NULL);
    }
}

/* d_q (R, N H) and d_kv (T, 2 N H), in matrices as wide as those of q and kv, from d_context (R, N H) and what
`attention` has returned. cells (R), cells_kv (T): the flat cells of the rows of both, or null. */
void attention_backward(const bf16 *q, int64_t q_width, const bf16 *kv, int64_t kv_width, const bf16 *d_context,
                        const int64_t *rows, const int64_t *returned, int64_t B, int64_t L, const AttentionShape *f,
                        const Dropout *d, const float *log_sums, const uint64_t *kept, const int64_t *cells, int64_t R,
                        const int64_t *cells_kv, int64_t T, bf16 *d_q, bf16 *d_kv, int threads) {
    int64_t N = f->N, H = f->H, D = N * H, words = (L + 63) / 64;
    clear_padding(d_q, q_width, D, returned, cells, R);
    clear_padding(d_kv, kv_width, 2 * D, rows, cells_kv, T);
#pragma omp parallel num_threads(threads)
    {
        Head h = make_head(L, H);
#pragma omp for schedule(dynamic, N)
        for (int64_t task = 0; task < B * N; task++) {
            read_head(&h, q, q_width, kv, kv_width, rows, returned, task, f);
            int64_t l = h.l, w = h.wide, column = h.n * H;
            gather(&h, d_context + column, D, h.returned_row, h.queries, h.Q, d->scale, h.dc);
            pack_transposed(h.k, w, l, w, h.kt);
            pack_transposed(h.v, w, l, w, h.vt);
            pack(h.k, w, l, w, l, h.kp);
            for (int64_t start = 0; start < h.Q; start += DEPTH) {
                int64_t count = h.Q - start < DEPTH ? h.Q - start : DEPTH, strip = whole(count, ROWS);
                const bf16 *queries = h.q + start * w, *dc = h.dc + start * w;
                int64_t first = start / GROUP * GROUP, at = start - first; /* of the group; in it */
                int64_t depth = whole(h.Q - first < GROUP ? h.Q - first : GROUP, ROWS);
                strip_backward(&h, f, start, strip, log_sums + task * L, kept ? kept + task * L * words : NULL);
                multiply(h.ds, l, h.kp, h.rows, w, strip, w, l, 0);
                for (int64_t i = 0; i < count; i++) {
                    bf16 *out = d_q + h.returned_row[h.queries[start + i]] * q_width + column;
                    VECTOR for (int64_t m = 0; m < H; m++) out[m] = narrow(h.rows[i * w + m]);
                    rotate(f, L, h.queries + start + i, 1, out, 0, -1);
                }
                pack(h.ds, l, strip, l, depth, h.dsp + at * TILE), pack(h.p, l, strip, l, depth, h.pp + at * TILE);
                turn(queries, w, w, h.qt + at, GROUP), turn(dc, w, w, h.dct + at, GROUP);
                if (at + strip < depth) continue;
                multiply(h.qt, GROUP, h.dsp, h.dkt, l, w, l, depth, first > 0);
                multiply(h.dct, GROUP, h.pp, h.dvt, l, w, l, depth, first > 0);
            }
            if (!h.Q) memset(h.dkt, 0, w * l * sizeof(float)), memset(h.dvt, 0, w * l * sizeof(float));
            scatter_transposed(&h, h.dkt, d_kv + column, kv_width);
            for (int64_t i = 0; i < h.K; i++)
                rotate(f, L, h.keys + i, 1, d_kv + h.row_of[h.keys[i]] * kv_width + column, 0, -1);
            scatter_transposed(&h, h.dvt, d_kv + D + column, kv_width);
        }
        end_head(&h);
    }
}

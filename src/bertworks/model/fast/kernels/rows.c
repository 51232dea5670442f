/* Operations on the rows of a batch: LayerNorm of a sum, GELU, cross entropy over a vocabulary. Each is one pass over
memory, in which a row stays in the cache of its core.

Shapes: T rows of a packed batch, L positions of a sequence, D width (a multiple of 16), M predictions, V vocabulary.
*/

#include "kernels.h"

/* The rows t of thread k. Sums over rows are kept for each thread and added up in the order of the threads. */
#define THREADS _Pragma("omp parallel for schedule(static, 1) num_threads(threads)") for (int k = 0; k < threads; k++)
#define ITS_ROWS(T) for (int64_t t = (T) * k / threads; t < (T) * (k + 1) / threads; t++)
#define COLUMNS(D) for (int64_t j = 0; j < (D); j += WIDTH)

static void add_up(float *parts, int64_t width, int threads, float *out) {
    memcpy(out, parts, width * sizeof(float));
    for (int k = 1; k < threads; k++)
        for (int64_t j = 0; j < width; j++) out[j] += parts[k * width + j];
    free(parts);
}

static inline void add_to(float *sums, __m512 x) { _mm512_storeu_ps(sums, _mm512_add_ps(_mm512_loadu_ps(sums), x)); }

/* ---- x + dropout(update), then LayerNorm

cells (T): the flat cell of each row, which says where its mask is; without them row t is cell t. */

static const uint8_t *row_bytes(const Dropout *d, const int64_t *cells, int64_t t, int64_t L, int64_t D,
                                uint8_t *buffer) {
    int64_t cell = cells ? cells[t] : t;
    return d->dropped ? draw(d, cell / L, cell % L * D, D, buffer) : buffer;
}

static inline __mmask16 is_kept(const uint8_t *bytes, const Dropout *d) { /* all are at least 0 without dropout */
    return _mm_cmpge_epu8_mask(_mm_loadu_si128((const __m128i *)bytes), _mm_set1_epi8((char)d->dropped));
}

/* x, update, sum, out and out16 are (T, D), mean and scale (T). kept (T, D / 16): the bits of what dropout keeps, or
null. */
void add_norm(const float *x, const bf16 *update, const int64_t *cells, int64_t T, int64_t D, int64_t L,
              const Dropout *d, const float *gain, const float *bias, float eps, float *sum, float *out, bf16 *out16,
              float *mean, float *scale, uint16_t *kept, int threads) {
    THREADS {
        uint8_t *buffer = calloc(D + 2 * BLOCK, 1);
        ITS_ROWS(T) {
            const uint8_t *bytes = row_bytes(d, cells, t, L, D, buffer);
            float *s = sum + t * D;
            __m512 total = all(0), squares = all(0);
            COLUMNS(D) {
                __mmask16 mask = is_kept(bytes + j, d);
                if (kept) kept[(t * D + j) / WIDTH] = mask;
                __m512 added = _mm512_maskz_mul_ps(mask, load16(update + t * D + j), all(d->scale));
                __m512 one = _mm512_add_ps(_mm512_loadu_ps(x + t * D + j), added);
                _mm512_storeu_ps(s + j, one);
                total = _mm512_add_ps(total, one);
            }
            float m = _mm512_reduce_add_ps(total) / D;
            COLUMNS(D) {
                __m512 off = _mm512_sub_ps(_mm512_loadu_ps(s + j), all(m));
                squares = _mm512_fmadd_ps(off, off, squares);
            }
            float r = 1 / sqrtf(_mm512_reduce_add_ps(squares) / D + eps);
            COLUMNS(D) {
                __m512 normal = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(s + j), all(m)), all(r));
                __m512 one = _mm512_fmadd_ps(normal, _mm512_loadu_ps(gain + j), _mm512_loadu_ps(bias + j));
                _mm512_storeu_ps(out + t * D + j, one);
                store16(out16 + t * D + j, one);
            }
            mean[t] = m, scale[t] = r;
        }
        free(buffer);
    }
}

/* The grads of x and update (T, D), gain and bias (D) from those of out and out16, one of which may be missing, and
what `add_norm` has returned. factor: of what dropout keeps. */
void add_norm_backward(const float *d_out, const bf16 *d_out16, const float *sum, const float *mean, const float *scale,
                       const uint16_t *kept, const float *gain, int64_t T, int64_t D, float factor, float *d_x,
                       bf16 *d_update, float *d_gain, float *d_bias, int threads) {
    float *gains = calloc(D * threads, sizeof(float)), *biases = calloc(D * threads, sizeof(float));
    THREADS {
        float *grads = malloc(D * sizeof(float));
        ITS_ROWS(T) {
            const float *s = sum + t * D;
            __m512 first = all(0), second = all(0);
            COLUMNS(D) {
                __m512 grad = d_out ? _mm512_loadu_ps(d_out + t * D + j) : all(0);
                if (d_out16) grad = _mm512_add_ps(grad, load16(d_out16 + t * D + j));
                __m512 normal = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(s + j), all(mean[t])), all(scale[t]));
                __m512 wanted = _mm512_mul_ps(grad, _mm512_loadu_ps(gain + j));
                add_to(biases + k * D + j, grad);
                add_to(gains + k * D + j, _mm512_mul_ps(grad, normal));
                first = _mm512_add_ps(first, wanted);
                second = _mm512_fmadd_ps(wanted, normal, second);
                _mm512_storeu_ps(grads + j, wanted);
            }
            __m512 along = all(_mm512_reduce_add_ps(first) / D), across = all(_mm512_reduce_add_ps(second) / D);
            COLUMNS(D) {
                __m512 normal = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(s + j), all(mean[t])), all(scale[t]));
                __m512 one = _mm512_sub_ps(_mm512_loadu_ps(grads + j), along);
                one = _mm512_mul_ps(_mm512_fnmadd_ps(normal, across, one), all(scale[t]));
                _mm512_storeu_ps(d_x + t * D + j, one);
                __mmask16 mask = kept ? kept[(t * D + j) / WIDTH] : 0xffff;
                store16(d_update + t * D + j, _mm512_maskz_mul_ps(mask, one, all(factor)));
            }
        }
        free(grads);
    }
    add_up(gains, D, threads, d_gain);
    add_up(biases, D, threads, d_bias);
}

/* ---- dropout by itself

x and out (T, D). */
void drop(const float *x, const int64_t *cells, int64_t T, int64_t D, int64_t L, const Dropout *d, float *out,
          int threads) {
    THREADS {
        uint8_t *buffer = calloc(D + 2 * BLOCK, 1);
        ITS_ROWS(T) {
            const uint8_t *bytes = row_bytes(d, cells, t, L, D, buffer);
            COLUMNS(D) {
                __m512 one = _mm512_loadu_ps(x + t * D + j);
                _mm512_storeu_ps(out + t * D + j, _mm512_maskz_mul_ps(is_kept(bytes + j, d), one, all(d->scale)));
            }
        }
        free(buffer);
    }
}

/* ---- GELU: x times the share of the normal distribution below x */

/* bell: exp(-x^2 / 2). Abramowitz and Stegun 7.1.26, within 1e-7. */
static inline __m512 below(__m512 x, __m512 bell) {
    __m512 base = _mm512_fmadd_ps(all(0.3275911f * 0.70710678f), _mm512_abs_ps(x), all(1.0f));
    __m512 t = _mm512_rcp14_ps(base);
    t = _mm512_mul_ps(t, _mm512_fnmadd_ps(base, t, all(2.0f))); /* 1 / base, by Newton's step */
    __m512 p = _mm512_fmadd_ps(all(1.061405429f), t, all(-1.453152027f));
    p = _mm512_fmadd_ps(p, t, all(1.421413741f));
    p = _mm512_fmadd_ps(p, t, all(-0.284496736f));
    p = _mm512_fmadd_ps(p, t, all(0.254829592f));
    __m512 tail = _mm512_mul_ps(_mm512_mul_ps(p, t), _mm512_mul_ps(bell, all(0.5f)));
    return _mm512_mask_sub_ps(tail, _mm512_cmp_ps_mask(x, all(0), _CMP_GE_OQ), all(1.0f), tail);
}

static inline __m512 bell_of(__m512 x) { return exponential(_mm512_mul_ps(_mm512_mul_ps(x, x), all(-0.5f))); }

/* The tanh form: the share is 1 / (1 + exp(-2 z)) with z = sqrt(2 / pi) (x + 0.044715 x^3). */
static inline __m512 logistic(__m512 x, __m512 square) {
    __m512 z2 = _mm512_mul_ps(_mm512_mul_ps(x, all(1.59576912f)), _mm512_fmadd_ps(square, all(0.044715f), all(1)));
    __m512 power = exponential(_mm512_min_ps(all(100), _mm512_sub_ps(all(0), z2))); /* infinite from 89 on */
    return _mm512_div_ps(all(1), _mm512_add_ps(all(1), power));
}

static inline __m512 grad_of(__m512 x, int64_t tanh) {
    if (!tanh) {
        __m512 bell = bell_of(x);
        return _mm512_fmadd_ps(_mm512_mul_ps(x, all(0.39894228f)), bell, below(x, bell));
    }
    __m512 square = _mm512_mul_ps(x, x), share = logistic(x, square);
    __m512 inner = _mm512_mul_ps(x, _mm512_fmadd_ps(square, all(1.59576912f * 3 * 0.044715f), all(1.59576912f)));
    return _mm512_fmadd_ps(_mm512_mul_ps(share, _mm512_sub_ps(all(1), share)), inner, share);
}

/* x and out (T, D). tanh: whether in the tanh form. */
void gelu(const bf16 *x, int64_t T, int64_t D, int64_t tanh, bf16 *out, int threads) {
    THREADS {
        unsigned exact = flush_tiny();
        ITS_ROWS(T) COLUMNS(D) {
            __m512 v = load16(x + t * D + j);
            store16(out + t * D + j, _mm512_mul_ps(v, tanh ? logistic(v, _mm512_mul_ps(v, v)) : below(v, bell_of(v))));
        }
        _mm_setcsr(exact);
    }
}

/* grad (T, D) of the output becomes that of x; d_bias (D) is its sum over rows. */
void gelu_backward(const bf16 *x, bf16 *grad, int64_t T, int64_t D, int64_t tanh, float *d_bias, int threads) {
    float *sums = calloc(D * threads, sizeof(float));
    THREADS {
        unsigned exact = flush_tiny();
        ITS_ROWS(T) COLUMNS(D) {
            __m512 one = _mm512_mul_ps(grad_of(load16(x + t * D + j), tanh), load16(grad + t * D + j));
            add_to(sums + k * D + j, one);
            store16(grad + t * D + j, one);
        }
        _mm_setcsr(exact);
    }
    add_up(sums, D, threads, d_bias);
}

/* ---- the loss over the vocabulary */

static inline __mmask16 lanes(int64_t count) { return count < WIDTH ? (1 << count) - 1 : 0xffff; }

static inline __m512 load_rest(const bf16 *x, int64_t count) { /* behind `count` numbers: minus infinity */
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_mask_loadu_epi16(_mm256_set1_epi16((short)0xff80), lanes(count), x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

/* scores (M, V), in rows of `stride`, become the grads of the summed cross entropy of scores + bias (V). losses (M):
   0, as the grads, where the label is negative; d_bias (V): the sum of the grads over rows. What is between two rows
   becomes 0: oneDNN multiplies it by 0, which must not be a NaN. */
void cross_entropy(bf16 *scores, const float *bias, const int64_t *labels, int64_t M, int64_t V, int64_t stride,
                   float *losses, float *d_bias, int threads) {
    float *sums = calloc(V * threads, sizeof(float));
    THREADS {
        float *row = malloc((V + WIDTH) * sizeof(float)), *own = sums + k * V;
        unsigned exact = flush_tiny();
        ITS_ROWS(M) {
            bf16 *s = scores + t * stride;
            memset(s + V, 0, (stride - V) * sizeof(bf16));
            if (labels[t] < 0) {
                memset(s, 0, V * sizeof(bf16));
                losses[t] = 0;
                continue;
            }
            __m512 largest = all(-INFINITY), total = all(0);
            float wanted = widen(s[labels[t]]) + bias[labels[t]];
            COLUMNS(V) {
                __m512 one = _mm512_add_ps(load_rest(s + j, V - j), _mm512_maskz_loadu_ps(lanes(V - j), bias + j));
                _mm512_storeu_ps(row + j, one);
                largest = _mm512_max_ps(largest, one);
            }
            float top = _mm512_reduce_max_ps(largest);
            COLUMNS(V) {
                __m512 one = exponential(_mm512_sub_ps(_mm512_loadu_ps(row + j), all(top)));
                _mm512_storeu_ps(row + j, one);
                total = _mm512_add_ps(total, one);
            }
            float sum = _mm512_reduce_add_ps(total), share = 1 / sum;
            losses[t] = logf(sum) + top - wanted;
            row[labels[t]] -= sum; /* softmax minus one-hot */
            VECTOR for (int64_t j = 0; j < V; j++) {
                float one = row[j] * share;
                own[j] += one;
                s[j] = narrow(one);
            }
        }
        _mm_setcsr(exact);
        free(row);
    }
    add_up(sums, V, threads, d_bias);
}

/* ---- the norm of gradients */

#define SHARE 65536 /* numbers whose squares are summed at a time, so that threads change nothing */

/* The sum of the squares of `count` numbers, read in four places at once: memory is faster then than in one. */
static double sum_of_squares(const float *x, int64_t count) {
    __m512 sums[4] = {all(0), all(0), all(0), all(0)};
    int64_t quarter = count / (4 * WIDTH) * WIDTH, i = 0;
    for (; i < quarter; i += WIDTH)
        for (int k = 0; k < 4; k++) {
            __m512 one = _mm512_loadu_ps(x + k * quarter + i);
            sums[k] = _mm512_fmadd_ps(one, one, sums[k]);
        }
    for (i = 4 * quarter; i < count; i += WIDTH) {
        __m512 one = _mm512_maskz_loadu_ps(lanes(count - i), x + i);
        sums[0] = _mm512_fmadd_ps(one, one, sums[0]);
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])));
}

/* The norm of `count` tensors together; sizes: their numbers. */
void norm(const float *const *tensors, const int64_t *sizes, int64_t count, float *out, int threads) {
    double total = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t shares = (sizes[i] + SHARE - 1) / SHARE;
        double *parts = malloc(shares * sizeof(double));
#pragma omp parallel for schedule(static) num_threads(threads) if (shares > 1)
        for (int64_t k = 0; k < shares; k++) {
            int64_t left = sizes[i] - k * SHARE;
            parts[k] = sum_of_squares(tensors[i] + k * SHARE, left < SHARE ? left : SHARE);
        }
        for (int64_t k = 0; k < shares; k++) total += parts[k];
        free(parts);
    }
    *out = (float)sqrt(total);
}

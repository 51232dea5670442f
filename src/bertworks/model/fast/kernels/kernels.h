/* What the kernels share: bfloat16, the exponential, the random bytes of dropout. */

#include <immintrin.h>
#include <pmmintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint16_t bf16;

#define VECTOR _Pragma("omp simd")
#define UNROLLED _Pragma("GCC unroll 16") /* so that the compiler keeps an array in registers */
#define BLOCK 32 /* random bytes of one counter value */

static inline float widen(bf16 x) {
    union { uint32_t bits; float value; } one = {(uint32_t)x << 16};
    return one.value;
}

static inline bf16 narrow(float x) { /* to the nearest; ties to even */
    union { float value; uint32_t bits; } one = {x};
    return (one.bits + 0x7fff + ((one.bits >> 16) & 1)) >> 16;
}

/* ---- 16 numbers at a time */

#define WIDTH 16

static inline __m512 all(float x) { return _mm512_set1_ps(x); }

static inline __m512 load16(const bf16 *x) {
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

static inline void store16(bf16 *out, __m512 x) {
    _mm256_storeu_si256((__m256i *)out, (__m256i)_mm512_cvtneps_pbh(x));
}

/* Numbers below 1e-38 count as 0 from here on, in this thread: processors take a hundred times as long for them.
   Returns the setting before, for _mm_setcsr. */
static inline unsigned flush_tiny(void) {
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
    return before;
}

static inline __m512 exponential(__m512 x) { /* within 2e-7 of exp(x), 0 below -104: Cephes' polynomial */
    x = _mm512_max_ps(all(-110), x); /* NaN stays */
    __m512 whole = _mm512_roundscale_ps(_mm512_mul_ps(x, all(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
    __m512 r = _mm512_fnmadd_ps(whole, all(-2.12194440e-4f), _mm512_fnmadd_ps(whole, all(0.693359375f), x));
    __m512 p = _mm512_fmadd_ps(all(1.9875691500e-4f), r, all(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, all(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, all(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, all(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, all(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, all(1.0f)));
    return _mm512_scalef_ps(p, whole);
}

/* Which bytes of NumPy's Philox generator decide what is dropped (dropout.py). */
typedef struct {
    uint64_t seed, stream; /* the key */
    uint64_t first;        /* counter before the first sequence */
    int64_t blocks;        /* counter values a sequence */
    int64_t dropped;       /* of 256 values of a byte, those that drop an element; 0: nothing is dropped */
    float scale;           /* of the elements that are kept */
} Dropout;

/* Philox 4x64 with 10 rounds (Salmon et al. 2011). */
static inline void philox(uint64_t k0, uint64_t k1, uint64_t counter, uint64_t out[4]) {
    uint64_t c0 = counter, c1 = 0, c2 = 0, c3 = 0;
    for (int round = 0; round < 10; round++) {
        unsigned __int128 a = (unsigned __int128)0xD2E7470EE14C6C93ULL * c0;
        unsigned __int128 b = (unsigned __int128)0xCA5A826395121157ULL * c2;
        c0 = (uint64_t)(b >> 64) ^ c1 ^ k0;
        c2 = (uint64_t)(a >> 64) ^ c3 ^ k1;
        c1 = (uint64_t)b;
        c3 = (uint64_t)a;
        k0 += 0x9E3779B97F4A7C15ULL;
        k1 += 0xBB67AE8584CAA73BULL;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* The random bytes of elements start, start + 1, ... of a sequence; `buffer` has room for count + 2 * BLOCK. */
static inline const uint8_t *draw(const Dropout *d, int64_t sequence, int64_t start, int64_t count, uint8_t *buffer) {
    int64_t from = start / BLOCK, to = (start + count + BLOCK - 1) / BLOCK;
    uint64_t counter = d->first + (uint64_t)(sequence * d->blocks) + 1;
    for (int64_t i = from; i < to; i++) {
        uint64_t words[4];
        philox(d->seed, d->stream, counter + i, words);
        memcpy(buffer + (i - from) * BLOCK, words, BLOCK);
    }
    return buffer + (start - from * BLOCK);
}

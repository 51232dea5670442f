/* Products of matrices, and their operands: by AMX's tiles where the processor has them, else by AVX-512 with bfloat16.
The rows of a left operand are a multiple of ROWS, the columns of a right one of COLUMN_STEP. The depth, over which a
product sums, is a multiple of DEPTH with tiles, of 2 without. */

#include "kernels.h"

#define TILE 16 /* rows of a tile; floats in one of its rows */
#define DEPTH 32 /* bfloat16 numbers in a row of a tile */

static inline int64_t whole(int64_t count, int64_t step) { return (count + step - 1) / step * step; }
static inline int64_t padded(int64_t count) { return whole(count, DEPTH); }

/* ---- products

The right operand (depth, N) is `packed`: its columns n to n + 16 begin at n * depth, and in them the numbers of two
rows alternate. */

#ifdef __AMX_BF16__

#define ROWS DEPTH
#define COLUMN_STEP DEPTH

/* gcc's functions for the configuration tell the compiler that they touch its first 8 bytes, and those that load a tile
do not tell it that they read memory: it may leave out or move what was written before. Hence the assembly and
`written`. */
#define written() __asm__ volatile("" ::: "memory")

typedef struct { uint8_t bytes[64]; } Tiles;

static inline void set_tiles(Tiles tiles) { __asm__ volatile("ldtilecfg %0" ::"m"(tiles)); }

static inline Tiles take_tiles(void) { /* returns the configuration that somebody else, oneDNN, may be using */
    Tiles before, ours = {{1}}; /* palette 1; 8 tiles of 16 rows with 64 bytes */
    for (int i = 0; i < 8; i++) ours.bytes[16 + 2 * i] = 64, ours.bytes[48 + i] = TILE;
    __asm__ volatile("sttilecfg %0" : "=m"(before));
    set_tiles(ours);
    return before;
}

static inline void give_tiles_back(Tiles before) {
    if (before.bytes[0])
        set_tiles(before);
    else
        _tile_release();
}

/* c (M, N) = a (M, depth) times `packed` (depth, N), or that added to c. */
static inline void multiply(const bf16 *a, int64_t lda, const bf16 *packed, float *c, int64_t ldc, int64_t M, int64_t N,
                     int64_t depth, int add) {
    written();
    for (int64_t m = 0; m < M; m += 2 * TILE)
        for (int64_t n = 0; n < N; n += 2 * TILE) {
            float *upper = c + m * ldc + n, *lower = upper + TILE * ldc;
            const bf16 *left = a + m * lda, *right = packed + n * depth;
            _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
            if (add) {
                _tile_loadd(0, upper, ldc * 4); _tile_loadd(1, upper + TILE, ldc * 4);
                _tile_loadd(2, lower, ldc * 4); _tile_loadd(3, lower + TILE, ldc * 4);
            }
            for (int64_t k = 0; k < depth; k += DEPTH) {
                _tile_loadd(4, left + k, lda * 2); _tile_loadd(5, left + TILE * lda + k, lda * 2);
                _tile_loadd(6, right + k * TILE, 64); _tile_loadd(7, right + (depth + k) * TILE, 64);
                _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(1, 4, 7);
                _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(3, 5, 7);
            }
            _tile_stored(0, upper, ldc * 4); _tile_stored(1, upper + TILE, ldc * 4);
            _tile_stored(2, lower, ldc * 4); _tile_stored(3, lower + TILE, ldc * 4);
        }
}

#else

typedef int Tiles;
static inline Tiles take_tiles(void) { return 0; }
static inline void give_tiles_back(Tiles before) { (void)before; }

#define ROWS 8 /* whose sums are kept in registers, 32 columns of each */
#define COLUMN_STEP TILE

/* sums (rows, 16 tiles) += a (rows, depth) times the columns at `right`. Numbers k and k + 1 of row i are at
i * lda + k * step. rows, tiles: known to the compiler. */
static inline __attribute__((always_inline)) void accumulate(const bf16 *a, int64_t lda, int64_t step,
                                                             const bf16 *right, int64_t depth, int rows, int tiles,
                                                             __m512 sums[ROWS][2]) {
    for (int64_t k = 0; k < depth; k += 2) {
        __m512bh b[2];
        UNROLLED for (int j = 0; j < tiles; j++) b[j] = (__m512bh)_mm512_loadu_si512(right + (j * depth + k) * TILE);
        UNROLLED for (int i = 0; i < rows; i++) {
            int32_t pair;
            memcpy(&pair, a + i * lda + k * step, 4);
            __m512bh left = (__m512bh)_mm512_set1_epi32(pair);
            UNROLLED for (int j = 0; j < tiles; j++) sums[i][j] = _mm512_dpbf16_ps(sums[i][j], left, b[j]);
        }
    }
}

/* c (8, 16 tiles) += a times the columns at `right`, or is that alone. tiles: known to the compiler. */
static inline __attribute__((always_inline)) void multiply_rows(const bf16 *a, int64_t lda, int64_t step,
                                                                const bf16 *right, float *c, int64_t ldc,
                                                                int64_t depth, int add, int tiles) {
    __m512 sums[ROWS][2];
    UNROLLED for (int i = 0; i < ROWS; i++)
        UNROLLED for (int j = 0; j < tiles; j++)
            sums[i][j] = add ? _mm512_loadu_ps(c + i * ldc + j * TILE) : _mm512_setzero_ps();
    accumulate(a, lda, step, right, depth, ROWS, tiles, sums);
    UNROLLED for (int i = 0; i < ROWS; i++)
        UNROLLED for (int j = 0; j < tiles; j++) _mm512_storeu_ps(c + i * ldc + j * TILE, sums[i][j]);
}

static inline void multiply(const bf16 *a, int64_t lda, const bf16 *packed, float *c, int64_t ldc, int64_t M, int64_t N,
                     int64_t depth, int add) {
    for (int64_t m = 0; m < M; m += ROWS) {
        int64_t n = 0;
        for (; n + TILE < N; n += 2 * TILE)
            multiply_rows(a + m * lda, lda, 1, packed + n * depth, c + m * ldc + n, ldc, depth, add, 2);
        if (n < N) multiply_rows(a + m * lda, lda, 1, packed + n * depth, c + m * ldc + n, ldc, depth, add, 1);
    }
}

#endif

/* ---- operands */

static inline void transpose(const uint32_t *x, int64_t ldx, uint32_t *out, int64_t ldo) { /* 16 x 16 */
    __m512i a[TILE], b[TILE];
    for (int i = 0; i < TILE; i++) a[i] = _mm512_loadu_si512(x + i * ldx);
    for (int i = 0; i < TILE; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < TILE; i += 4)
        for (int j = 0; j < 2; j++) {
            a[i + 2 * j] = _mm512_unpacklo_epi64(b[i + j], b[i + j + 2]);
            a[i + 2 * j + 1] = _mm512_unpackhi_epi64(b[i + j], b[i + j + 2]);
        }
    for (int i = 0; i < TILE; i += 8)
        for (int j = 0; j < 4; j++) {
            b[i + j] = _mm512_shuffle_i32x4(a[i + j], a[i + j + 4], 0x88);
            b[i + j + 4] = _mm512_shuffle_i32x4(a[i + j], a[i + j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        _mm512_storeu_si512(out + j * ldo, _mm512_shuffle_i32x4(b[j], b[j + 8], 0x88));
        _mm512_storeu_si512(out + (j + 8) * ldo, _mm512_shuffle_i32x4(b[j], b[j + 8], 0xdd));
    }
}

/* x (rows, N) as `rows` of the rows of a right operand (depth, N). */
static inline void pack(const bf16 *x, int64_t ldx, int64_t rows, int64_t N, int64_t depth, bf16 *out) {
    int64_t n = 0;
    static const uint16_t pairs[2 * TILE] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                             8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    __m512i left = _mm512_loadu_si512(pairs), right = _mm512_add_epi16(left, _mm512_set1_epi16(TILE));
    for (; n + TILE < N; n += 2 * TILE)
        for (int64_t k = 0; k < rows; k += 2) {
            const bf16 *row = x + k * ldx + n;
            __m512i a = _mm512_loadu_si512(row), b = _mm512_loadu_si512(row + ldx);
            _mm512_storeu_si512(out + n * depth + k * TILE, _mm512_permutex2var_epi16(a, left, b));
            _mm512_storeu_si512(out + (n + TILE) * depth + k * TILE, _mm512_permutex2var_epi16(a, right, b));
        }
    for (; n < N; n += TILE)
        for (int64_t k = 0; k < rows; k += 2) {
            const bf16 *row = x + k * ldx + n;
            __m512i first = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)row));
            __m512i second = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(row + ldx)));
            _mm512_storeu_si512(out + n * depth + k * TILE, _mm512_or_si512(first, _mm512_slli_epi32(second, 16)));
        }
}

/* The transpose of x (N, depth) as a right operand. */
static inline void pack_transposed(const bf16 *x, int64_t ldx, int64_t N, int64_t depth, bf16 *out) {
    for (int64_t n = 0; n < N; n += TILE)
        for (int64_t k = 0; k < depth; k += DEPTH, out += DEPTH * TILE)
            transpose((const uint32_t *)(x + n * ldx + k), ldx / 2, (uint32_t *)out, TILE);
}

/* The transpose of x (32, N): (N, 32), as a part of a left operand with rows of `ldo`. */
static inline void turn(const bf16 *x, int64_t ldx, int64_t N, bf16 *out, int64_t ldo) {
    bf16 pairs[DEPTH * TILE];
    for (int64_t n = 0; n < N; n += TILE) {
        pack(x + n, ldx, DEPTH, TILE, DEPTH, pairs);
        transpose((const uint32_t *)pairs, TILE, (uint32_t *)(out + n * ldo), ldo / 2);
    }
}

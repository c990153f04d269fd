/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 of a range as RocketMQ stores it: top bit cleared, 0 for no bytes.
 *
 * Sixty-four bytes a step by carry-less multiplication where the processor has it (V. Gopal et al.,
 * "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009, which
 * gives the constants), else and at the end eight bytes a step from tables.
 */
#include "kernel.h"

#define POLYNOMIAL 0xEDB88320u

static uint32_t tables[8][256];

void crc32_init(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1) * POLYNOMIAL;
        tables[0][byte] = value;
    }
    for (int step = 1; step < 8; step++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = tables[step - 1][byte];
            tables[step][byte] = before >> 8 ^ tables[0][before & 255];
        }
}

static uint32_t by_table(uint32_t crc, bytes at, int64_t count)
{
    for (; count >= 8; at += 8, count -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        word ^= crc;
        crc = 0;
        for (int step = 0; step < 8; step++) crc ^= tables[7 - step][word >> 8 * step & 255];
    }
    for (; count > 0; at++, count--) crc = crc >> 8 ^ tables[0][(crc ^ *at) & 255];
    return crc;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("sse4.1,pclmul")))

TARGET static inline __m128i load(bytes at) { return _mm_loadu_si128((const __m128i *)at); }

TARGET static inline __m128i fold(__m128i folded, __m128i by, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(folded, by, 0x00);
    __m128i high = _mm_clmulepi64_si128(folded, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Return the register after `count` bytes: at least 64, a multiple of 16. */
TARGET static uint32_t by_folding(uint32_t crc, bytes at, int64_t count)
{
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    __m128i lane[4];
    for (int i = 0; i < 4; i++) lane[i] = load(at + 16 * i);
    lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int)crc));
    for (at += 64, count -= 64; count >= 64; at += 64, count -= 64)
        for (int i = 0; i < 4; i++) lane[i] = fold(lane[i], by_64, load(at + 16 * i));
    __m128i all = lane[0];
    for (int i = 1; i < 4; i++) all = fold(all, by_16, lane[i]);
    for (; count >= 16; at += 16, count -= 16) all = fold(all, by_16, load(at));
    const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
    const __m128i by_8 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    all = _mm_xor_si128(_mm_srli_si128(all, 8), _mm_clmulepi64_si128(all, by_16, 0x10));
    __m128i part = _mm_clmulepi64_si128(_mm_and_si128(all, low_words), by_8, 0x00);
    all = _mm_xor_si128(_mm_srli_si128(all, 4), part);
    part = _mm_clmulepi64_si128(_mm_and_si128(all, low_words), barrett, 0x10);
    part = _mm_clmulepi64_si128(_mm_and_si128(part, low_words), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(all, part), 1);
}

static int can_fold(void) { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); }
#else
static uint32_t by_folding(uint32_t crc, bytes at, int64_t count) { return by_table(crc, at, count); }

static int can_fold(void) { return 0; }
#endif

uint32_t stored_crc32(bytes at, int64_t count)
{
    if (!count) return 0;
    uint32_t crc = ~0u;
    if (count >= 64 && can_fold()) {
        int64_t whole = count & ~(int64_t)15;
        crc = by_folding(crc, at, whole);
        at += whole;
        count -= whole;
    }
    return ~by_table(crc, at, count) & 0x7FFFFFFF;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Property strings, split by the rule of codec/property_columns.py. */
#include "properties.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

typedef struct {
    Pair *pairs;
    int count;
    bytes part, name_end; /* the part that is open, and its first 0x01 */
} Split;

static inline int end_part(Split *split, bytes at)
{
    bytes name_end = split->name_end;
    if (name_end && name_end > split->part && at - name_end > 1) {
        if (split->count == MOST_PAIRS) return 0;
        split->pairs[split->count++] = (Pair){split->part, name_end + 1, (int32_t)(name_end - split->part),
                                              (int32_t)(at - name_end - 1)};
    }
    split->part = at + 1;
    split->name_end = NULL;
    return 1;
}

static inline int meet(Split *split, bytes at, uint8_t byte)
{
    if (byte == PROPERTY_SEPARATOR) return end_part(split, at);
    if (byte == NAME_VALUE_SEPARATOR && !split->name_end) split->name_end = at;
    return 1;
}

int split_pairs(bytes at, int64_t count, bytes end, Pair *pairs)
{
    Split split = {pairs, 0, at, NULL};
    bytes stop = at + count;
#if defined(__SSE2__)
    const __m128i separators = _mm_set1_epi8(PROPERTY_SEPARATOR);
    for (; stop - at > 0 && end - at >= 16; at += 16) {
        __m128i block = _mm_loadu_si128((const __m128i *)at);
        __m128i is_low = _mm_cmpeq_epi8(_mm_min_epu8(block, separators), block);
        unsigned hits = (unsigned)_mm_movemask_epi8(is_low);
        if (stop - at < 16) hits &= (1u << (stop - at)) - 1;
        for (; hits; hits &= hits - 1) {
            bytes hit = at + __builtin_ctz(hits);
            if (!meet(&split, hit, *hit)) return -1;
        }
    }
#endif
    (void)end;
    for (; at < stop; at++)
        if (!meet(&split, at, *at)) return -1;
    if (split.part < stop && !end_part(&split, stop)) return -1;
    return split.count;
}

int take_text(uint8_t *to, bytes from, int64_t count, int64_t most, bytes end)
{
    if (count > most) return 0;
    copy_padded(to, from, count, end);
    return is_utf8(to, count);
}

const Pair *find_last(const Pair *pairs, int count, bytes name, int64_t name_bytes)
{
    while (count--)
        if (pairs[count].name_bytes == name_bytes && !memcmp(pairs[count].name, name, (size_t)name_bytes))
            return pairs + count;
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Property strings, split by the rule of codec/property_columns.py. */
#include "properties.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Where a walk over the bytes of a property string is. */
typedef struct {
    bytes part, name_end; /* the part that is open, and its first 0x01 */
} Walker;

/* What to do with each pair; 0: stop. */
typedef int (*Visit)(void *to, const Pair *pair);

static inline __attribute__((always_inline)) int end_part(Walker *walker, bytes at, Visit visit, void *to)
{
    bytes part = walker->part, name_end = walker->name_end;
    *walker = (Walker){at + 1, NULL};
    if (!name_end || name_end == part || at - name_end <= 1) return 1;
    Pair pair = {part, name_end + 1, (int32_t)(name_end - part), (int32_t)(at - name_end - 1)};
    return visit(to, &pair);
}

static inline __attribute__((always_inline)) int meet(Walker *walker, bytes at, Visit visit, void *to)
{
    uint8_t byte = *at;
    if (byte == PROPERTY_SEPARATOR) return end_part(walker, at, visit, to);
    if (byte == NAME_VALUE_SEPARATOR && !walker->name_end) walker->name_end = at;
    return 1;
}

#if defined(__SSE2__)
/* Return a bit for each of 16 bytes that is a separator, or 0x00. */
static inline uint64_t low_bytes(bytes at)
{
    const __m128i separators = _mm_set1_epi8(PROPERTY_SEPARATOR);
    __m128i block = _mm_loadu_si128((const __m128i *)at);
    return (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(block, separators), block));
}
#endif

/* Visit all pairs in order; return 0 if a visit stopped that. Each function that visits has its own copy. */
static inline __attribute__((always_inline)) int each_pair(bytes at, int64_t count, bytes end, Visit visit, void *to)
{
    Walker walker = {at, NULL};
    bytes stop = at + count;
#if defined(__SSE2__)
    for (; stop - at > 0 && end - at >= 64; at += 64) {
        uint64_t hits = low_bytes(at) | low_bytes(at + 16) << 16 | low_bytes(at + 32) << 32 | low_bytes(at + 48) << 48;
        if (stop - at < 64) hits &= ((uint64_t)1 << (stop - at)) - 1;
        for (; hits; hits &= hits - 1)
            if (!meet(&walker, at + __builtin_ctzll(hits), visit, to)) return 0;
    }
#endif
    (void)end;
    for (; at < stop; at++)
        if (!meet(&walker, at, visit, to)) return 0;
    return walker.part >= stop || end_part(&walker, stop, visit, to);
}

typedef struct {
    Pair *pairs;
    int count;
} Pairs;

static inline int append(void *to, const Pair *pair)
{
    Pairs *all = to;
    if (all->count == MOST_PAIRS) return 0;
    all->pairs[all->count++] = *pair;
    return 1;
}

int split_pairs(bytes at, int64_t count, bytes end, Pair *pairs)
{
    Pairs all = {pairs, 0};
    return each_pair(at, count, end, append, &all) ? all.count : -1;
}

typedef struct {
    const Name *names;
    Value *values;
    int count;
} Wanted;

static inline int note_if_wanted(void *to, const Pair *pair)
{
    const Wanted *wanted = to;
    for (int i = 0; i < wanted->count; i++) {
        const Name *name = wanted->names + i;
        if (pair->name_bytes == name->count && are_same(pair->name, name->at, name->count))
            wanted->values[i] = (Value){pair->value, pair->value_bytes};
    }
    return 1;
}

void find_values(bytes at, int64_t count, bytes end, const Name *names, int name_count, Value *values)
{
    Wanted wanted = {names, values, name_count};
    for (int i = 0; i < name_count; i++) values[i] = (Value){NULL, 0};
    each_pair(at, count, end, note_if_wanted, &wanted);
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
        if (pairs[count].name_bytes == name_bytes && are_same(pairs[count].name, name, name_bytes))
            return pairs + count;
    return NULL;
}

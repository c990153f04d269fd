/* SPDX-License-Identifier: Apache-2.0 */
/* Big-endian numbers, copies and UTF-8: what every part of the kernel reads and writes with. */
#ifndef ROCKETMQ_STORE_BYTES_H
#define ROCKETMQ_STORE_BYTES_H

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernel is for little-endian processors; others use NumPy"
#endif

typedef const uint8_t *bytes;

/* Some bytes of others; what a negative count or NULL means is said where it can be. */
typedef struct {
    bytes at;
    int64_t count;
} Piece;

static inline int16_t read_i2(bytes at) { return (int16_t)(at[0] << 8 | at[1]); }

static inline int32_t read_i4(bytes at)
{
    uint32_t value;
    memcpy(&value, at, 4);
    return (int32_t)__builtin_bswap32(value);
}

static inline int64_t read_i8(bytes at)
{
    uint64_t value;
    memcpy(&value, at, 8);
    return (int64_t)__builtin_bswap64(value);
}

static inline uint8_t *write_i2(uint8_t *to, int32_t value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
    return to + 2;
}

static inline uint8_t *write_i4(uint8_t *to, int32_t value)
{
    uint32_t swapped = __builtin_bswap32((uint32_t)value);
    memcpy(to, &swapped, 4);
    return to + 4;
}

static inline uint8_t *write_i8(uint8_t *to, int64_t value)
{
    uint64_t swapped = __builtin_bswap64((uint64_t)value);
    memcpy(to, &swapped, 8);
    return to + 8;
}

#define COPY_PADDING 16 /* bytes that copy_padded may write past the end of what it copies */

/* Copy a short piece in whole words: reads up to `end`, writes up to 15 bytes too many. */
static inline void copy_padded(uint8_t *to, bytes from, int64_t count, bytes end)
{
    if (count > 128 || end - from < count + COPY_PADDING) {
        memcpy(to, from, (size_t)count);
        return;
    }
    for (int64_t done = 0; done < count; done += 16) memcpy(to + done, from + done, 16);
}

static inline uint32_t word4(bytes at)
{
    uint32_t word;
    memcpy(&word, at, 4);
    return word;
}

static inline uint64_t word8(bytes at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

/* Return whether two short pieces are the same; in words, without a call. */
static inline int are_same(bytes one, bytes other, int64_t count)
{
    if (count < 4) {
        for (int64_t at = 0; at < count; at++)
            if (one[at] != other[at]) return 0;
        return 1;
    }
    if (count < 8) return word4(one) == word4(other) && word4(one + count - 4) == word4(other + count - 4);
    uint64_t differing = word8(one + count - 8) ^ word8(other + count - 8); /* may overlap the word before */
    for (int64_t at = 0; at < count - 8; at += 8) differing |= word8(one + at) ^ word8(other + at);
    return !differing;
}

/* Ask for the lines of `count` bytes from `at` on that are inside the data. Inlined always: GCC takes
 * a function that does nothing else for one without effect, and drops its calls.
 */
static inline __attribute__((always_inline)) void prefetch(bytes data, int64_t length, int64_t at, int64_t count)
{
    for (int64_t line = at; at >= 0 && line < length && line - at < count; line += 64) __builtin_prefetch(data + line);
}

static inline int is_ascii(bytes at, int64_t count)
{
    uint64_t any = 0;
    for (; count >= 8; at += 8, count -= 8) any |= word8(at);
    if (count >= 4) any |= word4(at) | word4(at + count - 4); /* bytes are read twice rather than one by one */
    else if (count > 0) any |= at[0] | at[count / 2] | at[count - 1];
    return !(any & 0x8080808080808080ull);
}

/* Return whether the bytes are UTF-8 as Arrow checks it: no overlong forms, no surrogates. */
static inline int is_utf8(bytes at, int64_t count)
{
    if (is_ascii(at, count)) return 1;
    for (bytes end = at + count; at < end;) {
        uint8_t lead = *at++;
        if (lead < 0x80) continue;
        int more = lead >= 0xC2 && lead < 0xE0   ? 1
                   : lead >= 0xE0 && lead < 0xF0 ? 2
                   : lead >= 0xF0 && lead < 0xF5 ? 3
                                                 : 0;
        if (!more || end - at < more) return 0;
        uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (*at < low || *at > high) return 0;
        for (at++; --more; at++)
            if ((*at & 0xC0) != 0x80) return 0;
    }
    return 1;
}

#endif

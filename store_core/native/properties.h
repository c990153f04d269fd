/* SPDX-License-Identifier: Apache-2.0 */
/* The properties of one record: views of its bytes. */
#ifndef ROCKETMQ_STORE_PROPERTIES_H
#define ROCKETMQ_STORE_PROPERTIES_H

#include "kernel.h"

#define MOST_PAIRS 256

typedef struct {
    bytes name, value;
    int32_t name_bytes, value_bytes;
} Pair;

typedef struct {
    bytes at;
    int64_t count;
} Name;

/* Where the value of a property is: NULL without one. */
typedef struct {
    bytes at;
    int64_t count;
} Value;

/* Find the value of each name, the last one if it is repeated; reads up to `end`. */
void find_values(bytes at, int64_t count, bytes end, const Name *names, int name_count, Value *values);

/* Text copied out of the data before it is checked: others may write there meanwhile. */
#define MOST_TOPIC 255
#define MOST_PROPERTIES INT16_MAX
typedef struct {
    uint8_t topic[MOST_TOPIC + 1 + COPY_PADDING], properties[MOST_PROPERTIES + 1 + COPY_PADDING];
} Texts;

/* Copy text up to `most` bytes that is UTF-8; return 0 for any other. */
int take_text(uint8_t *to, bytes from, int64_t count, int64_t most, bytes end);

/* Fill up to MOST_PAIRS pairs; return how many there are, -1 if too many. Reads up to `end`. */
int split_pairs(bytes at, int64_t count, bytes end, Pair *pairs);

/* Of repeated names the last counts; NULL: none has the name. */
const Pair *find_last(const Pair *pairs, int count, bytes name, int64_t name_bytes);

#define FIND(pairs, count, name) find_last(pairs, count, (bytes)(name), sizeof(name) - 1)

#endif

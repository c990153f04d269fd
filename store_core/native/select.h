/* SPDX-License-Identifier: Apache-2.0 */
/* Which records match a predicate, before anything is made of them. */
#ifndef ROCKETMQ_STORE_SELECT_H
#define ROCKETMQ_STORE_SELECT_H

#include "columns.h"

typedef struct {
    Records in;
    int32_t without_flags; /* records with one of these bits do not match */
    const int64_t *ranges; /* number of a field, least and greatest value, and so on */
    int64_t range_count;
    const Name *topics; /* one of them; any topic without them */
    int topic_count;
    uint8_t *keep;
} Selection;

void select_records(Selection *selection);
/* Set `found` where the value of the one name is one of the texts. */
void select_by_value(const Naming *naming, const Name *texts, int text_count, uint8_t *found);

#endif

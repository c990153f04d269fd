/* SPDX-License-Identifier: Apache-2.0 */
/* One message to its record, as put/record_template.py makes it. */
#include "put.h"

#define MOST_LENGTH INT16_MAX /* of the properties */

static int64_t properties_bytes(const Put *put)
{
    int64_t all = put->piece_count + put->raw.count; /* each piece is followed by one separator */
    for (int i = 0; i < put->piece_count; i++) all += put->pieces[i].count;
    return all;
}

static int is_host(Piece host) { return host.count == IPV4_HOST_BYTES || host.count == IPV6_HOST_BYTES; }

static int32_t flags_of(const Put *put)
{
    int32_t own = put->sys_flag & ~(BORNHOST_V6_FLAG | STOREHOST_V6_FLAG);
    if (put->born_host.count == IPV6_HOST_BYTES) own |= BORNHOST_V6_FLAG;
    return put->store_host.count == IPV6_HOST_BYTES ? own | STOREHOST_V6_FLAG : own;
}

int64_t put_bytes(const Put *put)
{
    if (properties_bytes(put) > MOST_LENGTH || !is_host(put->born_host) || !is_host(put->store_host)) return -1;
    int64_t hosts = put->born_host.count + put->store_host.count - 2 * IPV4_HOST_BYTES;
    int64_t others = HEADER_BYTES + hosts + put->topic.count + PROPERTIES_LENGTH_BYTES + properties_bytes(put);
    return put->body.count > INT32_MAX - others ? -1 : others + put->body.count;
}

static uint8_t *append(uint8_t *to, Piece from)
{
    memcpy(to, from.at, (size_t)from.count);
    return to + from.count;
}

uint8_t *write_put(const Put *put, uint8_t *record)
{
    uint8_t *to = write_i4(record, (int32_t)put_bytes(put));
    to = write_i4(to, put->magic_code);
    to = write_i4(to, put->body_crc);
    to = write_i4(to, put->queue_id);
    to = write_i4(to, put->flag);
    to = write_i8(write_i8(to, 0), 0); /* both offsets: known on append, as the store time */
    to = write_i4(to, flags_of(put));
    to = write_i8(to, put->born_timestamp);
    to = write_i8(append(to, put->born_host), 0);
    to = append(to, put->store_host);
    to = write_i4(to, put->reconsume_times);
    to = write_i8(to, put->prepared_transaction_offset);
    to = append(write_i4(to, (int32_t)put->body.count), put->body);
    to = write_i2(append(to, put->topic), (int32_t)properties_bytes(put));
    uint8_t *properties = to;
    to = append(to, put->raw);
    for (int i = 0; i < put->piece_count; i++) {
        to = append(to, put->pieces[i]);
        *to++ = i % 2 ? PROPERTY_SEPARATOR : NAME_VALUE_SEPARATOR;
    }
    return properties;
}

int holds(bytes at, int64_t count, Piece mark)
{
    bytes end = at + count;
    while (mark.count > 0 && end - at >= mark.count) {
        at = memchr(at, *mark.at, (size_t)(end - at - mark.count) + 1);
        if (!at) return 0;
        if (!memcmp(at, mark.at, (size_t)mark.count)) return 1;
        at++;
    }
    return 0;
}

int patch_put(uint8_t *record, int64_t size, int64_t queue_offset, int64_t commit_log_offset, int64_t store_timestamp)
{
    if (size < MIN_RECORD_BYTES) return 0;
    int is_wide = read_i4(record + AT_SYS_FLAG) & BORNHOST_V6_FLAG;
    int64_t time_at = AT_STORE_TIMESTAMP + (is_wide ? IPV6_HOST_BYTES - IPV4_HOST_BYTES : 0);
    write_i8(record + AT_QUEUE_OFFSET, queue_offset);
    write_i8(record + AT_COMMIT_LOG_OFFSET, commit_log_offset);
    write_i8(record + time_at, store_timestamp);
    return 1;
}

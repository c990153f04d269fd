/* SPDX-License-Identifier: Apache-2.0 */
/* Columns to records in one pass, body CRC included: codec/record_encoder.py checks the values, and
 * says what is patched; codec/property_columns.py says how properties are joined. */
#include "encode.h"

#define MOST_LENGTH INT16_MAX /* of topic, and of properties */
#define MOST_NARROW_TOPIC INT8_MAX

static int is_host(Piece host) { return host.count == IPV4_HOST_BYTES || host.count == IPV6_HOST_BYTES; }

static uint8_t *append(uint8_t *to, Piece from)
{
    memcpy(to, from.at, (size_t)from.count);
    return to + from.count;
}

static int32_t number(const int32_t *column, int64_t row) { return column ? column[row] : 0; }
static int64_t long_number(const int64_t *column, int64_t row) { return column ? column[row] : 0; }

/* Return where the next record begins; -1 if this one is wrong or does not fit. */
static int64_t encode_record(Encoding *e, int64_t row, int64_t start)
{
    Piece topic = piece(&e->topic, row), body = piece(&e->body, row);
    Piece properties = piece(&e->properties, row), tail = piece(&e->tail, row);
    Piece born_host = piece(&e->born_host, row), store_host = piece(&e->store_host, row);
    int64_t properties_bytes = properties.count + tail.count;
    if (topic.count < 0 || topic.count > MOST_LENGTH || body.count < 0 || properties.count < 0 || tail.count < 0 ||
        properties_bytes > MOST_LENGTH || !is_host(born_host) || !is_host(store_host))
        return -1;
    int is_wide = topic.count > MOST_NARROW_TOPIC;
    int64_t hosts = born_host.count + store_host.count - 2 * IPV4_HOST_BYTES;
    int64_t size = MIN_RECORD_BYTES + hosts + is_wide + topic.count + body.count + properties_bytes;
    if (size > e->block_bytes - start || size > INT32_MAX) return -1;
    int32_t sys_flag = number(e->sys_flag, row) & ~(BORNHOST_V6_FLAG | STOREHOST_V6_FLAG);
    if (born_host.count == IPV6_HOST_BYTES) sys_flag |= BORNHOST_V6_FLAG;
    if (store_host.count == IPV6_HOST_BYTES) sys_flag |= STOREHOST_V6_FLAG;
    int32_t crc = (int32_t)stored_crc32(body.at, body.count);
    uint8_t *to = write_i4(e->block + start, (int32_t)size);
    to = write_i4(to, is_wide ? MESSAGE_MAGIC_CODE_V2 : MESSAGE_MAGIC_CODE);
    to = write_i4(to, crc);
    to = write_i4(to, number(e->queue_id, row));
    to = write_i4(to, number(e->flag, row));
    to = write_i8(write_i8(to, 0), 0); /* both offsets: known on append, as the store time */
    to = write_i4(to, sys_flag);
    to = write_i8(to, long_number(e->born_timestamp, row));
    to = append(to, born_host);
    e->store_timestamp_at[row] = to - e->block;
    to = write_i8(to, 0);
    to = append(to, store_host);
    to = write_i4(to, number(e->reconsume_times, row));
    to = write_i8(to, long_number(e->prepared_transaction_offset, row));
    to = append(write_i4(to, (int32_t)body.count), body);
    if (is_wide) to = write_i2(to, (int32_t)topic.count);
    else *to++ = (uint8_t)topic.count;
    to = append(to, topic);
    to = append(write_i2(to, (int32_t)properties_bytes), properties);
    append(to, tail);
    e->starts[row] = start;
    e->body_crc[row] = crc;
    return start + size;
}

int64_t encode_records(Encoding *e)
{
    int64_t at = 0;
    for (int64_t row = 0; row < e->rows; row++) {
        at = encode_record(e, row, at);
        if (at < 0) return row;
    }
    return at == e->block_bytes ? e->rows : -1;
}

/* ---- property strings ---- */

/* Copy in whole words where there is room for them, up to `to_end` and from up to `end`. */
static uint8_t *append_padded(uint8_t *to, const uint8_t *to_end, Piece from, bytes end)
{
    if (to_end - to < from.count + COPY_PADDING) return append(to, from);
    copy_padded(to, from.at, from.count, end);
    return to + from.count;
}

int64_t join_properties(Joining *j)
{
    uint8_t *to = j->data, *to_end = j->data + j->data_bytes;
    j->offsets[0] = 0;
    for (int64_t row = 0; row < j->rows; row++) {
        for (int i = 0; i < j->count; i++) {
            const Text *values = &j->values[i];
            Piece name = j->names[i], value = is_null(values, row) ? (Piece){values->data, 0} : piece(values, row);
            if (!value.count) continue; /* no decoder would return an empty property */
            if (value.count < 0 || to_end - to < name.count + value.count + 2) return row;
            to = append(to, name);
            *to++ = NAME_VALUE_SEPARATOR;
            to = append_padded(to, to_end, value, values->data + values->length);
            *to++ = PROPERTY_SEPARATOR;
        }
        j->offsets[row + 1] = (int32_t)(to - j->data);
    }
    return j->rows;
}

/* ---- what is known on append ---- */

int64_t patch_records(const Patching *p)
{
    for (int64_t row = 0; row < p->rows; row++) {
        int64_t start = p->starts[row], time_at = p->store_timestamp_at[row];
        if (start < 0 || start > p->block_bytes - MIN_RECORD_BYTES) return row;
        if (time_at < 0 || time_at > p->block_bytes - 8) return row;
        write_i8(p->block + start + AT_QUEUE_OFFSET, p->queue_offset[row]);
        write_i8(p->block + start + AT_COMMIT_LOG_OFFSET, p->commit_log_offset[row]);
        write_i8(p->block + time_at, p->store_timestamps ? p->store_timestamps[row] : p->store_timestamp);
    }
    return p->rows;
}

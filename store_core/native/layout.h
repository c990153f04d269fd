/* SPDX-License-Identifier: Apache-2.0 */
/* Made from store_core/layout.py by tests/layout_header.py: do not edit. */
#define MESSAGE_MAGIC_CODE -626843481
#define MESSAGE_MAGIC_CODE_V2 -626843477
#define BLANK_MAGIC_CODE -875286124
#define BLANK_RECORD_BYTES 8
#define MIN_RECORD_BYTES 91
#define BORNHOST_V6_FLAG 16
#define STOREHOST_V6_FLAG 32
#define INNER_BATCH_FLAG 128
#define IPV4_HOST_BYTES 8
#define IPV6_HOST_BYTES 20
#define PROPERTIES_LENGTH_BYTES 2
#define TRANSACTION_MASK 12
#define TRANSACTION_ROLLBACK_TYPE 12
#define NAME_VALUE_SEPARATOR 1
#define PROPERTY_SEPARATOR 2
#define KEY_SEPARATOR 32
#define TAG_TYPE 84
#define PROPERTY_KEYS "KEYS"
#define PROPERTY_TAGS "TAGS"
#define PROPERTY_UNIQ_KEY "UNIQ_KEY"
#define PROPERTY_INNER_NUM "INNER_NUM"
#define PROPERTY_INNER_MULTI_DISPATCH "INNER_MULTI_DISPATCH"
#define HEADER_BYTES 88
#define AT_TOTAL_SIZE 0
#define AT_MAGIC_CODE 4
#define AT_BODY_CRC 8
#define AT_QUEUE_ID 12
#define AT_FLAG 16
#define AT_QUEUE_OFFSET 20
#define AT_COMMIT_LOG_OFFSET 28
#define AT_SYS_FLAG 36
#define AT_BORN_TIMESTAMP 40
#define AT_BORN_HOST 48
#define AT_STORE_TIMESTAMP 56
#define AT_STORE_HOST 64
#define AT_RECONSUME_TIMES 72
#define AT_PREPARED_TRANSACTION_OFFSET 76
#define AT_BODY_LENGTH 84
#define INDEX_ENTRY_BYTES 20
#define AT_ENTRY_KEY_HASH 0
#define AT_ENTRY_COMMIT_LOG_OFFSET 4
#define AT_ENTRY_TIME_DIFF_SECONDS 12
#define AT_ENTRY_PREVIOUS_ENTRY 16
#define HEADER_FIELDS(FIELD) \
    FIELD(total_size, 0, 4, 0) \
    FIELD(magic_code, 4, 4, 0) \
    FIELD(body_crc, 8, 4, 0) \
    FIELD(queue_id, 12, 4, 0) \
    FIELD(flag, 16, 4, 0) \
    FIELD(queue_offset, 20, 8, 0) \
    FIELD(commit_log_offset, 28, 8, 0) \
    FIELD(sys_flag, 36, 4, 0) \
    FIELD(born_timestamp, 40, 8, 0) \
    FIELD(store_timestamp, 56, 8, 1) \
    FIELD(reconsume_times, 72, 4, 2) \
    FIELD(prepared_transaction_offset, 76, 8, 2) \
    FIELD(body_length, 84, 4, 2)

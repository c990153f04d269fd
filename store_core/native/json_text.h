/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON of remoting headers: a flat object, and in it an object of texts. */
#ifndef ROCKETMQ_STORE_JSON_TEXT_H
#define ROCKETMQ_STORE_JSON_TEXT_H

#include "bytes.h"

#define MOST_FIELDS 64

/* Return the bytes of an ASCII text in quotes; -1 for other texts. */
int64_t quoted_bytes(Piece text);

/* Write a text in quotes; return where it ends. */
uint8_t *write_quoted(uint8_t *to, Piece text);

/* A header; its texts are as they stand between the quotes, and NULL where they are absent or null. */
typedef struct {
    int32_t code, opaque, flag, version;
    Piece language, remark, names[MOST_FIELDS], values[MOST_FIELDS];
    int fields;
} Header;

/* Read a header; return whether it is as RocketMQ's clients and brokers write it: no blanks, no
 * nested values, at most MOST_FIELDS fields. */
int read_header(bytes data, int64_t length, Header *header);

/* Write a text without its escapes, which is never longer; return its bytes, or -1 for an escape
 * beyond ASCII. */
int64_t unescape(Piece text, uint8_t *to);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "json_text.h"

static const char hex_digits[] = "0123456789abcdef";
static const char escaped[] = "\"\\/\b\f\n\r\t", escapes[] = "\"\\/bfnrt";

/* Return the letter after the backslash of a short escape that Python writes; 0 if it has none. */
static uint8_t short_escape(uint8_t byte)
{
    for (int i = 0; byte != '/' && escapes[i]; i++)
        if ((uint8_t)escaped[i] == byte) return (uint8_t)escapes[i];
    return 0;
}

static int is_plain(uint8_t byte) { return byte >= 0x20 && byte != '"' && byte != '\\'; }

/* As Python writes it: with DEL escaped, which JSON does not require. */
static int needs_escape(uint8_t byte) { return !is_plain(byte) || byte == 0x7f; }

int64_t quoted_bytes(Piece text)
{
    int64_t count = text.count + 2;
    if (!is_ascii(text.at, text.count)) return -1;
    for (int64_t i = 0; i < text.count; i++)
        if (needs_escape(text.at[i])) count += short_escape(text.at[i]) ? 1 : 5;
    return count;
}

uint8_t *write_quoted(uint8_t *to, Piece text)
{
    *to++ = '"';
    for (int64_t i = 0; i < text.count; i++) {
        uint8_t byte = text.at[i], letter;
        if (!needs_escape(byte)) {
            *to++ = byte;
            continue;
        }
        *to++ = '\\';
        if ((letter = short_escape(byte))) {
            *to++ = letter;
            continue;
        }
        memcpy(to, "u00", 3);
        to[3] = (uint8_t)hex_digits[byte >> 4];
        to[4] = (uint8_t)hex_digits[byte & 15];
        to += 5;
    }
    *to++ = '"';
    return to;
}

typedef struct {
    bytes at, end;
} Reader;

static int take(Reader *reader, uint8_t byte)
{
    if (reader->at == reader->end || *reader->at != byte) return 0;
    reader->at++;
    return 1;
}

static int take_word(Reader *reader, const char *word)
{
    int64_t count = (int64_t)strlen(word);
    if (reader->end - reader->at < count || memcmp(reader->at, word, (size_t)count)) return 0;
    reader->at += count;
    return 1;
}

static int take_text(Reader *reader, Piece *text)
{
    if (!take(reader, '"')) return 0;
    text->at = reader->at;
    for (; reader->at < reader->end; reader->at++) {
        if (is_plain(*reader->at)) continue;
        if (*reader->at == '"') {
            text->count = reader->at++ - text->at;
            return 1;
        }
        if (*reader->at != '\\' || ++reader->at == reader->end) return 0;
    }
    return 0;
}

static int take_number(Reader *reader, int32_t *number)
{
    int is_negative = take(reader, '-');
    int64_t value = 0;
    bytes first = reader->at;
    for (; reader->at < reader->end && reader->at - first < 11 && *reader->at >= '0' && *reader->at <= '9';
         reader->at++)
        value = value * 10 + (*reader->at - '0');
    int64_t digits = reader->at - first;
    if (!digits || digits > 10 || (*first == '0' && digits > 1)) return 0;
    value = is_negative ? -value : value;
    *number = (int32_t)value;
    return *number == value;
}

static int is_word(Piece text, const char *word)
{
    return text.count == (int64_t)strlen(word) && !memcmp(text.at, word, (size_t)text.count);
}

static int take_fields(Reader *reader, Header *header)
{
    if (take_word(reader, "null") || take_word(reader, "{}")) return 1;
    if (!take(reader, '{')) return 0;
    do {
        int i = header->fields;
        if (i == MOST_FIELDS || !take_text(reader, &header->names[i]) || !take(reader, ':') ||
            !take_text(reader, &header->values[i]))
            return 0;
        header->fields++;
    } while (take(reader, ','));
    return take(reader, '}');
}

enum { CODE = 1, OPAQUE = 2, FLAG = 4, VERSION = 8, LANGUAGE = 16, FIELDS = 32, REMARK = 64, OTHER = 128 };

static int key_of(Piece name)
{
    static const char *const keys[] = {"code", "opaque", "flag", "version", "language", "extFields", "remark"};
    for (int i = 0; i < 7; i++)
        if (is_word(name, keys[i])) return 1 << i;
    return OTHER;
}

static int is_simple(Piece text) { return is_ascii(text.at, text.count) && !memchr(text.at, '\\', (size_t)text.count); }

static int take_value(Reader *reader, int key, Header *header)
{
    Piece other;
    int32_t number;
    switch (key) {
    case CODE: return take_number(reader, &header->code);
    case OPAQUE: return take_number(reader, &header->opaque);
    case FLAG: return take_number(reader, &header->flag);
    case VERSION: return take_number(reader, &header->version);
    case LANGUAGE: return take_text(reader, &header->language);
    case FIELDS: return take_fields(reader, header);
    case REMARK: return take_word(reader, "null") || take_text(reader, &header->remark);
    default: return take_text(reader, &other) ? is_simple(other) : take_number(reader, &number);
    }
}

int read_header(bytes data, int64_t length, Header *header)
{
    Reader reader = {data, data + length};
    Piece name;
    int found = 0;
    header->flag = header->version = header->fields = 0;
    header->language = header->remark = (Piece){0};
    if (!take(&reader, '{')) return 0;
    do {
        /* A name with escapes may be any; the first of two values with one name is not checked. */
        if (!take_text(&reader, &name) || !is_simple(name) || !take(&reader, ':')) return 0;
        int key = key_of(name);
        if (found & key & ~OTHER || !take_value(&reader, key, header)) return 0;
        found |= key;
    } while (take(&reader, ','));
    return (found & (CODE | OPAQUE)) == (CODE | OPAQUE) && take(&reader, '}') && reader.at == reader.end;
}

static int hex_value(uint8_t digit)
{
    if (digit >= '0' && digit <= '9') return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Return the character of `uXXXX`; -1 if it is not one of ASCII. */
static int unicode_escape(bytes at, bytes end)
{
    if (end - at < 5 || at[1] != '0' || at[2] != '0') return -1;
    int high = hex_value(at[3]), low = hex_value(at[4]);
    return high < 0 || high > 7 || low < 0 ? -1 : high << 4 | low;
}

int64_t unescape(Piece text, uint8_t *to)
{
    uint8_t *begin = to;
    for (bytes at = text.at, end = text.at + text.count; at < end;) {
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        if (++at == end) return -1;
        if (*at == 'u') {
            int character = unicode_escape(at, end);
            if (character < 0) return -1;
            *to++ = (uint8_t)character;
            at += 5;
            continue;
        }
        const char *letter = memchr(escapes, *at, sizeof(escapes) - 1);
        if (!letter) return -1;
        *to++ = (uint8_t)escaped[letter - escapes];
        at++;
    }
    return to - begin;
}

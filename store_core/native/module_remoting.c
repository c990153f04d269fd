/* SPDX-License-Identifier: Apache-2.0 */
/* Python's side of remoting frames and received records: what they are not sure of is for Python's code. */
#include <stdio.h>

#include "json_text.h"
#include "kernel.h"
#include "module.h"

#define MOST_HEADER_BYTES ((1 << 24) - 1)
#define PREFIX_BYTES 8
#define FIXED_BYTES 256 /* of the JSON around the texts, with room to spare */

/* ---- json_frame(code, fields, flag, language, opaque, remark or None, version, body) ---- */

static PyObject *refused(void)
{
    PyErr_Clear();
    Py_RETURN_NONE;
}

/* Get a text; return its bytes in quotes, -1 if it is for Python. The object keeps the bytes. */
static int64_t get_text(PyObject *object, Piece *text)
{
    Py_ssize_t count;
    if (!PyUnicode_Check(object)) return -1;
    text->at = (bytes)PyUnicode_AsUTF8AndSize(object, &count);
    text->count = count;
    return text->at ? quoted_bytes(*text) : -1;
}

/* Get the texts of a dictionary; return the bytes that all take, -1 if one is for Python. */
static int64_t get_fields(PyObject *fields, Header *header)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    int64_t sum = 0;
    while (PyDict_Next(fields, &at, &name, &value)) {
        int i = header->fields++;
        if (i == MOST_FIELDS) return -1;
        int64_t name_bytes = get_text(name, &header->names[i]), value_bytes = get_text(value, &header->values[i]);
        if (name_bytes < 0 || value_bytes < 0) return -1;
        sum += name_bytes + value_bytes + 2;
    }
    return sum;
}

static int get_number(PyObject *object, int32_t *number)
{
    long long value = PyLong_AsLongLong(object);
    *number = (int32_t)value;
    return *number == value && !(value == -1 && PyErr_Occurred());
}

static uint8_t *write_text(uint8_t *to, const char *text)
{
    size_t count = strlen(text);
    memcpy(to, text, count);
    return to + count;
}

static uint8_t *write_number(uint8_t *to, int32_t number) { return to + sprintf((char *)to, "%d", number); }

static uint8_t *write_header(uint8_t *to, const Header *header)
{
    to = write_number(write_text(to, "{\"code\":"), header->code);
    to = write_text(to, ",\"extFields\":{");
    for (int i = 0; i < header->fields; i++) {
        if (i) *to++ = ',';
        to = write_quoted(to, header->names[i]);
        *to++ = ':';
        to = write_quoted(to, header->values[i]);
    }
    to = write_number(write_text(to, "},\"flag\":"), header->flag);
    to = write_quoted(write_text(to, ",\"language\":"), header->language);
    to = write_number(write_text(to, ",\"opaque\":"), header->opaque);
    if (header->remark.at) to = write_quoted(write_text(to, ",\"remark\":"), header->remark);
    to = write_text(to, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    to = write_number(to, header->version);
    *to++ = '}';
    return to;
}

/* Return a frame of a header of at most `room` bytes, in which the body comes last. */
static PyObject *frame_of(const Header *header, int64_t room, const Py_buffer *body)
{
    uint8_t *buffer = PyMem_Malloc((size_t)room), *to;
    if (!buffer) return PyErr_NoMemory();
    int64_t count = write_header(buffer, header) - buffer;
    PyObject *frame = NULL;
    if (count > MOST_HEADER_BYTES || body->len > INT32_MAX - MOST_HEADER_BYTES - PREFIX_BYTES) {
        frame = Py_NewRef(Py_None);
    } else if ((frame = PyBytes_FromStringAndSize(NULL, PREFIX_BYTES + count + body->len))) {
        to = write_i4((uint8_t *)PyBytes_AsString(frame), (int32_t)(4 + count + body->len));
        to = write_i4(to, (int32_t)count); /* the form of a JSON header is 0 */
        memcpy(to, buffer, (size_t)count);
        PyThreadState *state = body->len > BYTES_WITH_GIL ? PyEval_SaveThread() : NULL;
        if (body->len) memcpy(to + count, body->buf, (size_t)body->len);
        if (state) PyEval_RestoreThread(state);
    }
    PyMem_Free(buffer);
    return frame;
}

PyObject *py_json_frame(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Header header;
    Py_buffer body;
    if (given != 8) return PyErr_Format(PyExc_TypeError, "expected 8 arguments, not %zd", given);
    header.fields = 0;
    header.remark = (Piece){0};
    if (!PyDict_CheckExact(args[1]) || !get_number(args[0], &header.code) || !get_number(args[2], &header.flag) ||
        !get_number(args[4], &header.opaque) || !get_number(args[6], &header.version) ||
        PyObject_GetBuffer(args[7], &body, PyBUF_SIMPLE) < 0)
        return refused();
    /* An object that has a buffer may run code, which may change the fields: not from here on. */
    int64_t fields = get_fields(args[1], &header), language = get_text(args[3], &header.language);
    int64_t remark = args[5] == Py_None ? 0 : get_text(args[5], &header.remark);
    int is_good = fields >= 0 && language >= 0 && remark >= 0;
    PyObject *frame = is_good ? frame_of(&header, FIXED_BYTES + fields + language + remark, &body) : refused();
    PyBuffer_Release(&body);
    return frame;
}

/* ---- json_header(data, begin, end): code, fields, remark, opaque, flag, language, version ---- */

static PyObject *as_text(Piece text, uint8_t *room)
{
    if (!text.at) return Py_NewRef(Py_None);
    int64_t count = unescape(text, room);
    return count < 0 ? NULL : PyUnicode_DecodeUTF8((const char *)room, (Py_ssize_t)count, "strict");
}

static PyObject *as_fields(const Header *header, uint8_t *room)
{
    PyObject *fields = PyDict_New();
    for (int i = 0; fields && i < header->fields; i++) {
        PyObject *name = as_text(header->names[i], room);
        PyObject *value = name ? as_text(header->values[i], room) : NULL;
        if (!value || PyDict_SetItem(fields, name, value) < 0) Py_CLEAR(fields);
        Py_XDECREF(name);
        Py_XDECREF(value);
    }
    return fields;
}

static PyObject *as_tuple(const Header *header, uint8_t *room)
{
    PyObject *fields = as_fields(header, room);
    PyObject *remark = fields ? as_text(header->remark, room) : NULL;
    PyObject *language = remark ? as_text(header->language, room) : NULL, *result = NULL;
    if (language)
        result = Py_BuildValue("iOOiiOi", header->code, fields, remark, header->opaque, header->flag, language,
                               header->version);
    Py_XDECREF(fields);
    Py_XDECREF(remark);
    Py_XDECREF(language);
    return result ? result : refused();
}

PyObject *py_json_header(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Header header;
    Py_buffer data;
    uint8_t small[4096], *room = small;
    if (given != 3) return PyErr_Format(PyExc_TypeError, "expected 3 arguments, not %zd", given);
    Py_ssize_t begin = PyLong_AsSsize_t(args[1]), end = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *result = NULL;
    if (begin < 0 || end < begin || end > data.len) PyErr_SetString(PyExc_ValueError, "a header is inside the data");
    else if (end - begin > (Py_ssize_t)sizeof(small) && !(room = PyMem_Malloc((size_t)(end - begin)))) PyErr_NoMemory();
    else if (read_header((bytes)data.buf + begin, end - begin, &header)) result = as_tuple(&header, room);
    else result = refused();
    if (room != small) PyMem_Free(room);
    PyBuffer_Release(&data);
    return result;
}

/* ---- plain_records(data, begin, other_flags): (start, body, its end, topic, its end, properties, end, queue offset)
 * ---- */

static int append_place(PyObject *list, bytes data, int64_t at, const Place *place)
{
    int64_t end = place->properties + place->properties_bytes;
    PyObject *row = Py_BuildValue("nnnnnnnL", (Py_ssize_t)at, (Py_ssize_t)place->body,
                                  (Py_ssize_t)(place->body + place->body_bytes), (Py_ssize_t)place->topic,
                                  (Py_ssize_t)(place->topic + place->topic_bytes), (Py_ssize_t)place->properties,
                                  (Py_ssize_t)end, (long long)read_i8(data + at + AT_QUEUE_OFFSET));
    int failed = !row || PyList_Append(list, row) < 0;
    Py_XDECREF(row);
    return !failed;
}

PyObject *py_plain_records(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    Py_buffer data;
    Place place;
    if (given != 3) return PyErr_Format(PyExc_TypeError, "expected 3 arguments, not %zd", given);
    Py_ssize_t at = PyLong_AsSsize_t(args[1]);
    long other_flags = PyLong_AsLong(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *list = NULL;
    if (at < 0 || at > data.len) PyErr_SetString(PyExc_ValueError, "records begin inside the data");
    else list = PyList_New(0);
    while (list && place_plain_record(data.buf, data.len, at, (int32_t)other_flags, &place)) {
        if (!append_place(list, data.buf, at, &place)) Py_CLEAR(list);
        at = (Py_ssize_t)(place.properties + place.properties_bytes);
    }
    PyBuffer_Release(&data);
    return list;
}

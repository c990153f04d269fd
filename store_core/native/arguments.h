/* SPDX-License-Identifier: Apache-2.0 */
/* What Python gives a function of the kernel: buffers and numbers. */
#ifndef ROCKETMQ_STORE_ARGUMENTS_H
#define ROCKETMQ_STORE_ARGUMENTS_H

#include "module.h"
#include "properties.h"

#define MOST_ARGUMENTS 24

typedef struct {
    Py_buffer views[MOST_ARGUMENTS];
    int count;
} Buffers;

/* Do long work while other threads run Python. */
#define WITHOUT_GIL(rows, size, work) \
    do { \
        int is_long = (rows) > ROWS_WITH_GIL || (size) > BYTES_WITH_GIL; \
        PyThreadState *state = is_long ? PyEval_SaveThread() : NULL; \
        work; \
        if (state) PyEval_RestoreThread(state); \
    } while (0)

/* Release what `get` got. */
void release(Buffers *buffers);

/* Return a contiguous buffer of exactly `expected` bytes (any number if negative), for values of
 * `width` bytes; NULL: error. */
void *get(Buffers *buffers, PyObject *object, int64_t expected, int width, int flags);

/* Return whether there are as many arguments as a function takes; sets an error. */
int has_arguments(Py_ssize_t given, Py_ssize_t expected);

/* Return 0 if it is no such number, with an error. */
int get_int64(PyObject *object, int64_t *value);

/* Take a tuple of bytes. */
int get_names(PyObject *names, Name *found, int *name_count);

/* Take data, position and parts, as all functions of whole records begin. */
int get_records(Buffers *buffers, PyObject *const *args, Records *records);

/* Take offsets and data of a column of `rows` texts. */
int get_text(Buffers *buffers, PyObject *const *args, Text *text, int64_t rows);

/* Take offsets, data, and which rows are valid; None thrice: all rows are null, the last: none is. */
int get_nullable(Buffers *buffers, PyObject *const *args, Text *text, int64_t rows);

/* Release the buffers; return None, or NULL if it is not done. */
PyObject *nothing(Buffers *buffers, int is_done);

#endif

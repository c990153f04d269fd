/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that Python calls: each is py_NAME, in the module_*.c of its kind. */
#ifndef ROCKETMQ_STORE_MODULE_H
#define ROCKETMQ_STORE_MODULE_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define ROWS_WITH_GIL 64 /* fewer rows, of few bytes, are done before another thread would have begun */
#define BYTES_WITH_GIL (1 << 15)

/* clang-format off */
#define FUNCTIONS(FUNCTION) \
    FUNCTION(crc32_ranges) FUNCTION(walk_records) FUNCTION(place_records) FUNCTION(header_field) FUNCTION(select) \
    FUNCTION(columns) FUNCTION(values) FUNCTION(have_value) \
    FUNCTION(number_topics) FUNCTION(dispatch) FUNCTION(dispatch_properties) FUNCTION(dispatch_values) FUNCTION(link) \
    FUNCTION(encode) FUNCTION(join_properties) FUNCTION(patch) FUNCTION(encode_put) FUNCTION(patch_put) \
    FUNCTION(json_frame) FUNCTION(json_header) FUNCTION(plain_records)
/* clang-format on */

#define FUNCTION(name) PyObject *py_##name(PyObject *module, PyObject *const *args, Py_ssize_t given);
FUNCTIONS(FUNCTION)
#undef FUNCTION

#endif

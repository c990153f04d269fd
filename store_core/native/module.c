/* SPDX-License-Identifier: Apache-2.0 */
/* The module: its functions, which module.h lists, and its constants. */
#include "module.h"
#include "columns.h"
#include "encode.h"
#include "fields.h"

#define INTERFACE 2 /* raised with _INTERFACE of __init__.py */

static PyMethodDef methods[] = {
#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, NULL},
    FUNCTIONS(FUNCTION)
#undef FUNCTION
        {NULL, NULL, 0, NULL},
};

static const char *const column_names[] = {
#define NUMBER(name, width) #name,
#define TEXT(name) #name,
    NUMBER_COLUMNS(NUMBER) TEXT_COLUMNS(TEXT) "properties", "names", "values", "keys", "words",
#undef NUMBER
#undef TEXT
};

_Static_assert(sizeof(column_names) / sizeof(*column_names) == of_first_value, "a name for each column");

static PyObject *texts(const char *const *values, int count)
{
    PyObject *result = PyTuple_New(count);
    for (int i = 0; result && i < count; i++) {
        PyObject *text = PyUnicode_FromString(values[i]);
        if (!text || PyTuple_SetItem(result, i, text) < 0) Py_CLEAR(result);
    }
    return result;
}

static int add_constants(PyObject *module)
{
    const char *field_names[sizeof(fields) / sizeof(*fields)];
    for (int64_t i = 0; i < FIELD_COUNT; i++) field_names[i] = fields[i].name;
    PyObject *columns_tuple = texts(column_names, of_first_value);
    PyObject *fields_tuple = texts(field_names, (int)FIELD_COUNT);
    int failed = PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0 ||
                 PyModule_AddIntConstant(module, "MOST_NAMED", MOST_NAMED) < 0 ||
                 PyModule_AddIntConstant(module, "MOST_NAMES", MOST_NAMES) < 0 || !columns_tuple || !fields_tuple ||
                 PyModule_AddObjectRef(module, "COLUMNS", columns_tuple) < 0 ||
                 PyModule_AddObjectRef(module, "HEADER_FIELDS", fields_tuple) < 0;
    Py_XDECREF(columns_tuple);
    Py_XDECREF(fields_tuple);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)add_constants}, {0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                        "_kernel",
                                        "The native kernel; see store_core/native/__init__.py.",
                                        0,
                                        methods,
                                        slots,
                                        NULL,
                                        NULL,
                                        NULL};

PyMODINIT_FUNC PyInit__kernel(void)
{
    crc32_init();
    columns_init();
    return PyModuleDef_Init(&definition);
}

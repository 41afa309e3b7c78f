/* The functions that compiled.py names, in C: the same results for the same arguments.

   The definitions are those in Python (chance.py, vectors.py); docs/decisions/0025-functions-in-c.md says why there are
   two. Nothing here keeps anything from one call to the next. BUILT_BESIDE comes from scripts/compile. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* The low 64 bits of an integer of any size and sign; false, with an exception set, if it is none. */
static int bits_of(PyObject *number, uint64_t *bits)
{
    *bits = PyLong_AsUnsignedLongLongMask(number);
    return *bits != UINT64_MAX || !PyErr_Occurred();
}

static int takes(const char *name, Py_ssize_t given, Py_ssize_t least, Py_ssize_t most)
{
    if (given >= least && given <= most)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd to %zd arguments, %zd were given", name, least, most, given);
    return 0;
}

static uint64_t spread_bits(uint64_t a, uint64_t b)
{
    return a * 0x9E3779B97F4A7C15u ^ b * 0xC2B2AE3D27D4EB4Fu;
}

static uint64_t stir_bits(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static PyObject *mix(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    uint64_t salted, a, b = 0;
    if (!takes("mix", count, 2, 3) || !bits_of(given[0], &salted) || !bits_of(given[1], &a)
        || (count == 3 && !bits_of(given[2], &b)))
        return NULL;
    return PyLong_FromUnsignedLongLong(stir_bits(salted ^ spread_bits(a, b)));
}

static PyObject *spread(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    uint64_t a, b = 0;
    if (!takes("spread", count, 1, 2) || !bits_of(given[0], &a) || (count == 2 && !bits_of(given[1], &b)))
        return NULL;
    return PyLong_FromUnsignedLongLong(spread_bits(a, b));
}

static PyObject *stir(PyObject *module, PyObject *number)
{
    uint64_t x;
    return bits_of(number, &x) ? PyLong_FromUnsignedLongLong(stir_bits(x)) : NULL;
}

static PyObject *stir_twice(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    uint64_t x, y;
    if (!takes("stir_twice", count, 2, 2) || !bits_of(given[0], &x) || !bits_of(given[1], &y))
        return NULL;
    return PyLong_FromUnsignedLongLong(stir_bits(stir_bits(x) ^ y));
}

static PyObject *unit(PyObject *module, PyObject *number)
{
    uint64_t bits;
    return bits_of(number, &bits) ? PyFloat_FromDouble((double)(bits >> 11) * 0x1p-53) : NULL;
}

/* Whether a > b; -1, with an exception set, if one is no integer. */
static int greater(PyObject *a, PyObject *b)
{
    int long_a, long_b;
    if (a == b)
        return 0;
    if (!PyLong_Check(a) || !PyLong_Check(b)) {
        PyErr_SetString(PyExc_TypeError, "ahead() compares integers");
        return -1;
    }
    long long x = PyLong_AsLongLongAndOverflow(a, &long_a), y = PyLong_AsLongLongAndOverflow(b, &long_b);
    return long_a || long_b ? PyObject_RichCompareBool(a, b, Py_GT) : x > y;
}

static PyObject *ahead(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    if (!takes("ahead", count, 2, 2))
        return NULL;
    for (int i = 0; i < 2; i++)
        if (!PyTuple_Check(given[i]) && !PyList_Check(given[i])) {
            PyErr_SetString(PyExc_TypeError, "ahead() takes tuples and lists");
            return NULL;
        }
    Py_ssize_t one = PySequence_Fast_GET_SIZE(given[0]), other = PySequence_Fast_GET_SIZE(given[1]);
    PyObject **ones = PySequence_Fast_ITEMS(given[0]), **others = PySequence_Fast_ITEMS(given[1]);
    long places = 0;
    for (Py_ssize_t i = 0; i < one && i < other; i++) {
        int more = greater(ones[i], others[i]);
        if (more < 0)
            return NULL;
        places += more;
    }
    return PyLong_FromLong(places);
}

static PyMethodDef functions[] = {
    {"ahead", (PyCFunction)(void (*)(void))ahead, METH_FASTCALL, NULL},
    {"mix", (PyCFunction)(void (*)(void))mix, METH_FASTCALL, NULL},
    {"spread", (PyCFunction)(void (*)(void))spread, METH_FASTCALL, NULL},
    {"stir", stir, METH_O, NULL},
    {"stir_twice", (PyCFunction)(void (*)(void))stir_twice, METH_FASTCALL, NULL},
    {"unit", unit, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static int say_what_for(PyObject *module)
{
    return PyModule_AddStringConstant(module, "BUILT_BESIDE", BUILT_BESIDE);
}

static PyModuleDef_Slot steps[] = {{Py_mod_exec, say_what_for}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_compiled", NULL, 0, functions, steps, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__compiled(void)
{
    return PyModuleDef_Init(&definition);
}

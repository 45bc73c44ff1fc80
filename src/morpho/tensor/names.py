"""Names that other libraries use for what Morpho has under another one, for the hint of an error.

>>> advice("concatenate")
'use mo.concat'
"""

from __future__ import annotations

SAME = {  # another library's name -> Morpho's
    "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
    "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "array": "asarray",
    "ascontiguousarray": "asarray", "bitwise_not": "bitwise_invert", "bool_": "bool", "cat": "concat",
    "concatenate": "concat", "conjugate": "conj", "cumprod": "cumulative_prod", "cumsum": "cumulative_sum",
    "double": "float64", "fabs": "abs", "fmax": "maximum", "fmin": "minimum", "fmod": "remainder", "half": "float16",
    "invert": "bitwise_invert", "jit": "compile", "left_shift": "bitwise_left_shift", "mod": "remainder",
    "power": "pow", "product": "prod", "right_shift": "bitwise_right_shift", "single": "float32",
    "true_divide": "divide", "unique": "unique_values", "argwhere": "nonzero", "gather": "take_along_axis",
    "index_select": "take", "put_along_axis": "scatter", "scatter_reduce": "scatter_add", "mm": "matmul",
    "bmm": "matmul", "swish": "silu", "norm": "linalg.vector_norm", "inv": "linalg.inv", "svd": "linalg.svd",
    "trace": "linalg.trace", "diagonal": "linalg.diagonal", "cross": "linalg.cross", "rand": "random.uniform",
    "randn": "random.normal", "randint": "random.randint", "manual_seed": "random.key", "seed": "random.key",
    "from_numpy": "asarray", "as_tensor": "asarray", "frombuffer": "asarray", "swapaxes": "moveaxis",
    "broadcast_tensors": "broadcast_arrays", "movedim": "moveaxis", "permute": "permute_dims",
}
OTHERWISE = {  # what has no name of its own
    "allclose": "mo.all(mo.abs(a - b) <= tolerance)", "isclose": "mo.abs(a - b) <= tolerance",
    "array_equal": "mo.all(a == b)", "atleast_1d": "mo.reshape(x, (-1,))", "average": "mo.mean, or a weighted mo.sum",
    "column_stack": "mo.stack(arrays, axis=1)", "copy": "mo.asarray(x, copy=True)", "cbrt": "mo.pow(x, 1 / 3)",
    "deg2rad": "x * (mo.pi / 180)", "diag": "mo.linalg.diagonal(x), or mo.eye(n) * x",
    "dot": "mo.matmul(a, b), or mo.vecdot(a, b)", "dstack": "mo.concat(arrays, axis=2)", "float": "mo.float32",
    "hstack": "mo.concat(arrays, axis=-1)", "identity": "mo.eye(n)", "inner": "mo.vecdot(a, b)", "int": "mo.int64",
    "median": "mo.sort(x)[n // 2]", "nan_to_num": "mo.where(mo.isnan(x), 0.0, x)",
    "nanmax": "mo.max(mo.where(mo.isnan(x), -mo.inf, x))", "nansum": "mo.sum(mo.where(mo.isnan(x), 0.0, x))",
    "ndim": "x.ndim", "rad2deg": "x * (180 / mo.pi)",
    "ravel": "mo.reshape(x, (-1,))", "rsqrt": "1 / mo.sqrt(x)", "shape": "x.shape", "size": "x.size",
    "split": "mo.unstack(x), or slices of x", "transpose": "x.T, or mo.permute_dims(x, axes)",
    "vstack": "mo.concat(arrays, axis=0)", "vmap": "broadcasting: every function takes leading axes",
}


def advice(name: str) -> str:
    """What to use instead of a name that Morpho does not have; empty where nothing comes close."""
    if name in SAME:
        return f"use mo.{SAME[name]}"
    return f"use {OTHERWISE[name]}" if name in OTHERWISE else ""

"""Examples of the functions that factories make from a name and a summary; they end their docstrings."""

from __future__ import annotations

# name of the function in `mo`, or with the namespace before it -> lines of a doctest
EXAMPLES = {
    "sigmoid": ">>> mo.sigmoid([0.0, 2.0])\nTensor([0.5      , 0.8807971], dtype=float32)",
    "silu": ">>> mo.silu([0.0, 1.0])\nTensor([0.       , 0.7310586], dtype=float32)",
    "mish": ">>> mo.mish([0.0, 1.0])\nTensor([0.       , 0.8650984], dtype=float32)",
    "softplus": ">>> mo.softplus([0.0, 100.0])\nTensor([  0.6931472, 100.       ], dtype=float32)",
    "add": ">>> mo.add([1.0, 2.0], [10.0, 20.0])\nTensor([11., 22.], dtype=float32)",
    "subtract": ">>> mo.subtract([5.0, 7.0], [1.0, 2.0])\nTensor([4., 5.], dtype=float32)",
    "multiply": ">>> mo.multiply([2.0, 3.0], [4.0, 5.0])\nTensor([ 8., 15.], dtype=float32)",
    "divide": ">>> mo.divide([1, 3], 2)\nTensor([0.5, 1.5], dtype=float32)",
    "floor_divide": ">>> mo.floor_divide([7, -7], 2)\nTensor([ 3, -4], dtype=int64)",
    "remainder": ">>> mo.remainder([7, -7], 3)\nTensor([1, 2], dtype=int64)",
    "maximum": ">>> mo.maximum([1.0, 5.0], 3.0)\nTensor([3., 5.], dtype=float32)",
    "minimum": ">>> mo.minimum([1.0, 5.0], 3.0)\nTensor([1., 3.], dtype=float32)",
    "atan2": ">>> mo.atan2([0.0, 1.0], [1.0, 0.0])\nTensor([0.       , 1.5707964], dtype=float32)",
    "hypot": ">>> mo.hypot([3.0, 5.0], [4.0, 12.0])\nTensor([ 5., 13.], dtype=float32)",
    "copysign": ">>> mo.copysign([1.0, 2.0], [-1.0, 1.0])\nTensor([-1.,  2.], dtype=float32)",
    "nextafter": ">>> mo.nextafter([1.0], 2.0)\nTensor([1.0000001], dtype=float32)",
    "logaddexp": (
        ">>> mo.logaddexp([0.0, 100.0], [0.0, 100.0])\n"
        "Tensor([  0.6931472, 100.693146 ], dtype=float32)"),
    "negative": ">>> mo.negative([1.0, -2.0])\nTensor([-1.,  2.], dtype=float32)",
    "sign": ">>> mo.sign([-3.0, 0.0, 5.0])\nTensor([-1.,  0.,  1.], dtype=float32)",
    "square": ">>> mo.square([2.0, 3.0])\nTensor([4., 9.], dtype=float32)",
    "sqrt": ">>> mo.sqrt([4.0, 9.0])\nTensor([2., 3.], dtype=float32)",
    "reciprocal": ">>> mo.reciprocal([2.0, 4.0])\nTensor([0.5 , 0.25], dtype=float32)",
    "floor": ">>> mo.floor([-1.5, 1.5])\nTensor([-2.,  1.], dtype=float32)",
    "ceil": ">>> mo.ceil([-1.5, 1.5])\nTensor([-1.,  2.], dtype=float32)",
    "trunc": ">>> mo.trunc([-1.5, 1.5])\nTensor([-1.,  1.], dtype=float32)",
    "round": ">>> mo.round([0.5, 1.5, 2.4])\nTensor([0., 2., 2.], dtype=float32)",
    "equal": ">>> mo.equal([1, 2], [1, 3])\nTensor([ True, False], dtype=bool)",
    "not_equal": ">>> mo.not_equal([1, 2], [1, 3])\nTensor([False,  True], dtype=bool)",
    "less": ">>> mo.less([1, 2], 2)\nTensor([ True, False], dtype=bool)",
    "less_equal": ">>> mo.less_equal([1, 2], 1)\nTensor([ True, False], dtype=bool)",
    "greater": ">>> mo.greater([1, 2], 1)\nTensor([False,  True], dtype=bool)",
    "greater_equal": ">>> mo.greater_equal([1, 2], 2)\nTensor([False,  True], dtype=bool)",
    "logical_and": ">>> mo.logical_and([True, True], [True, False])\nTensor([ True, False], dtype=bool)",
    "logical_or": ">>> mo.logical_or([False, True], [False, False])\nTensor([False,  True], dtype=bool)",
    "logical_xor": ">>> mo.logical_xor([True, True], [True, False])\nTensor([False,  True], dtype=bool)",
    "logical_not": ">>> mo.logical_not([True, False])\nTensor([False,  True], dtype=bool)",
    "bitwise_and": ">>> mo.bitwise_and([6, 5], 3)\nTensor([2, 1], dtype=int64)",
    "bitwise_or": ">>> mo.bitwise_or([4, 1], 2)\nTensor([6, 3], dtype=int64)",
    "bitwise_xor": ">>> mo.bitwise_xor([6, 5], 3)\nTensor([5, 6], dtype=int64)",
    "bitwise_invert": ">>> mo.bitwise_invert([0, 5])\nTensor([-1, -6], dtype=int64)",
    "bitwise_left_shift": ">>> mo.bitwise_left_shift([1, 3], 2)\nTensor([ 4, 12], dtype=int64)",
    "bitwise_right_shift": ">>> mo.bitwise_right_shift([8, -8], 1)\nTensor([ 4, -4], dtype=int64)",
    "gcd": ">>> mo.gcd([12, -18, 0], [18, 27, 5])\nTensor([6, 9, 5], dtype=int64)",
    "isnan": ">>> mo.isnan([1.0, mo.nan])\nTensor([False,  True], dtype=bool)",
    "isinf": ">>> mo.isinf([1.0, mo.inf])\nTensor([False,  True], dtype=bool)",
    "isfinite": ">>> mo.isfinite([1.0, mo.inf])\nTensor([ True, False], dtype=bool)",
    "signbit": ">>> mo.signbit([-0.0, 1.0])\nTensor([ True, False], dtype=bool)",
    "exp": ">>> mo.exp([0.0, 1.0])\nTensor([1.       , 2.7182817], dtype=float32)",
    "exp2": ">>> mo.exp2([0.0, 3.0])\nTensor([1., 8.], dtype=float32)",
    "expm1": ">>> mo.expm1([0.0, 1e-6])\nTensor([0.0000000e+00, 1.0000005e-06], dtype=float32)",
    "log": ">>> mo.log([1.0, mo.e])\nTensor([0., 1.], dtype=float32)",
    "log2": ">>> mo.log2([1.0, 8.0])\nTensor([0., 3.], dtype=float32)",
    "log10": ">>> mo.log10([1.0, 1000.0])\nTensor([0., 3.], dtype=float32)",
    "log1p": ">>> mo.log1p([0.0, 1e-6])\nTensor([0.000000e+00, 9.999995e-07], dtype=float32)",
    "sin": ">>> mo.sin([0.0, mo.pi / 2])\nTensor([0., 1.], dtype=float32)",
    "cos": ">>> mo.cos([0.0, mo.pi])\nTensor([ 1., -1.], dtype=float32)",
    "tan": ">>> mo.tan([0.0, mo.pi / 4])\nTensor([0., 1.], dtype=float32)",
    "asin": ">>> mo.asin([0.0, 1.0])\nTensor([0.       , 1.5707964], dtype=float32)",
    "acos": ">>> mo.acos([1.0, 0.0])\nTensor([0.       , 1.5707964], dtype=float32)",
    "atan": ">>> mo.atan([0.0, 1.0])\nTensor([0.       , 0.7853982], dtype=float32)",
    "sinh": ">>> mo.sinh([0.0, 1.0])\nTensor([0.       , 1.1752012], dtype=float32)",
    "cosh": ">>> mo.cosh([0.0, 1.0])\nTensor([1.       , 1.5430806], dtype=float32)",
    "tanh": ">>> mo.tanh([0.0, 1.0])\nTensor([0.       , 0.7615942], dtype=float32)",
    "asinh": ">>> mo.asinh([0.0, 1.0])\nTensor([0.       , 0.8813736], dtype=float32)",
    "acosh": ">>> mo.acosh([1.0, 2.0])\nTensor([0.      , 1.316958], dtype=float32)",
    "atanh": ">>> mo.atanh([0.0, 0.5])\nTensor([0.        , 0.54930615], dtype=float32)",
    "erf": ">>> mo.erf([0.0, 1.0])\nTensor([0.       , 0.8427008], dtype=float32)",
    "erfc": ">>> mo.erfc([0.0, 1.0])\nTensor([1.        , 0.15729919], dtype=float32)",
    "fft.fft": (
        ">>> mo.fft.fft([1.0, 0.0, 0.0, 0.0])\n"
        "Tensor([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)"),
    "fft.ifft": ">>> mo.real(mo.fft.ifft(mo.fft.fft([1.0, 2.0])))\nTensor([1., 2.], dtype=float32)",
    "fft.fftn": (
        ">>> mo.fft.fftn(mo.ones((2, 2)))\n"
        "Tensor([[4.+0.j, 0.+0.j],\n"
        "        [0.+0.j, 0.+0.j]], dtype=complex64)"),
    "fft.ifftn": (
        ">>> mo.real(mo.fft.ifftn(mo.fft.fftn(mo.ones((2, 2)))))\n"
        "Tensor([[1., 1.],\n"
        "        [1., 1.]], dtype=float32)"),
    "fft.rfft": (
        ">>> mo.fft.rfft([1.0, 1.0, 1.0, 1.0])\n"
        "Tensor([4.+0.j, 0.+0.j, 0.+0.j], dtype=complex64)"),
    "fft.irfft": (
        ">>> mo.fft.irfft(mo.fft.rfft([1.0, 2.0, 3.0]), n=3).numpy().round(4)\n"
        "array([1., 2., 3.], dtype=float32)"),
    "fft.rfftn": ">>> mo.fft.rfftn(mo.ones((2, 4))).shape\n(2, 3)",
    "fft.irfftn": ">>> mo.fft.irfftn(mo.fft.rfftn(mo.ones((2, 4)))).shape\n(2, 4)",
    "fft.fft2": ">>> mo.fft.fft2(mo.ones((3, 2, 4))).shape\n(3, 2, 4)",
    "fft.ifft2": ">>> mo.real(mo.fft.ifft2(mo.fft.fft2([[1.0, 2.0]])))\nTensor([[1., 2.]], dtype=float32)",
    "fft.rfft2": ">>> mo.fft.rfft2(mo.ones((3, 2, 4))).shape\n(3, 2, 3)",
    "fft.irfft2": ">>> mo.fft.irfft2(mo.fft.rfft2(mo.ones((3, 2, 4)))).shape\n(3, 2, 4)",
    "fft.hfft": ">>> mo.fft.hfft([1.0, 2.0, 3.0])\nTensor([ 8., -2.,  0., -2.], dtype=float32)",
    "fft.ihfft": ">>> mo.fft.ihfft([1.0, 2.0, 3.0, 2.0]).shape\n(3,)",
}


def documented(name: str, summary: str, places: int = 1) -> str:
    """The docstring of a function of `places` tensors: its summary and its example; one without an example of its own
    shows that it keeps the shape.

    >>> documented("sqrt", "Square root.").splitlines()
    ['Square root.', '', '>>> mo.sqrt([4.0, 9.0])', 'Tensor([2., 3.], dtype=float32)']
    >>> documented("twice", "Two times x.").splitlines()[-2:]
    ['>>> mo.twice([0.25, 0.5]).shape', '(2,)']
    """
    arguments = ", ".join(["[0.25, 0.5]"] * places)
    return summary + "\n\n" + EXAMPLES.get(name, f">>> mo.{name}({arguments}).shape\n(2,)") + "\n"

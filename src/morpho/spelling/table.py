"""The names that NumPy and PyTorch have for what Morpho has: one record each, from which `mo`, the methods of tensors,
the reference pages and the tests are derived.

A name never has another meaning than its owner gives it. Where NumPy and PyTorch disagree, the record is NumPy's.

>>> from morpho.spelling.table import ALIASES
>>> ALIASES["concatenate"].target, ALIASES["masked_fill"].owner
('concat', 'torch')
"""

from __future__ import annotations

import functools
import importlib
import inspect
from dataclasses import dataclass
from typing import Any

import morpho as mo
from morpho.tensor.functions.indexing.parts import reaching
from morpho.tensor.tools.foreign_calls import hinted


@dataclass(frozen=True, slots=True)
class Alias:
    """A name of another library: whose it is, what stands behind it, and what differs."""

    name: str
    owner: str  # numpy, torch, or both
    target: str  # a path in `mo`, or `file:function` of this folder
    note: str = ""

    def resolve(self) -> Any:
        file, colon, name = self.target.partition(":")
        if colon:
            module = importlib.import_module(f"morpho.spelling.{file}")
            value = getattr(module, name) if name else module
            if not inspect.isfunction(value):
                return value
            is_first = self.name in ASSIGNING
            return reaching(hinted(value), is_first) if is_first or "out" in inspect.signature(value).parameters \
                else hinted(value)
        return functools.reduce(getattr, self.target.split("."), mo)


ASSIGNING = frozenset(("copyto", "fill_diagonal", "place", "put", "putmask"))  # which assign to their first argument
# name=path in mo, separated by blanks
_NUMPY_SAME = """
absolute=abs arccos=acos arccosh=acosh arcsin=asin arcsinh=asinh arctan=atan arctan2=atan2 arctanh=atanh
bitwise_not=bitwise_invert concatenate=concat conjugate=conj degrees=rad2deg fix=trunc invert=bitwise_invert
left_shift=bitwise_left_shift mod=remainder power=pow radians=deg2rad right_shift=bitwise_right_shift row_stack=vstack
true_divide=divide
"""
_NUMPY_OWN = """
apply_along_axis apply_over_axes around array array2string array_equiv array_repr array_str asanyarray
asarray_chkfinite bartlett bitwise_count blackman broadcast_shapes copy copyto cross cumprod cumsum diag_indices_from
dot dsplit ediff1d extract fabs fill_diagonal float_power frombuffer fromfile fromfunction fromiter frompyfunc
fromstring genfromtxt geomspace get_printoptions hamming hanning histogramdd identity indices inner iscomplex
iscomplexobj isfortran isneginf isposinf isreal isrealobj isscalar issubdtype iterable ix_ kaiser lexsort load loadtxt
logaddexp2 logspace mask_indices matvec may_share_memory nancumprod nancumsum ndim packbits piecewise place poly
polyadd polyder polydiv polyint polymul polysub printoptions promote_types put putmask ravel_multi_index resize rint
rollaxis save savetxt savez savez_compressed set_printoptions setxor1d shape shares_memory size sort_complex spacing
trace transpose tri tril_indices_from trim_zeros triu_indices_from unpackbits vdot vecmat vectorize
"""
_TORCH_SAME = """
arccos_=acos broadcast_tensors=broadcast_arrays cholesky=linalg.cholesky conj_physical=conj det=linalg.det div=divide
eq=equal ge=greater_equal gt=greater inverse=linalg.inv le=less_equal lstsq=linalg.lstsq lt=less
matrix_power=linalg.matrix_power matrix_rank=linalg.matrix_rank movedim=moveaxis mul=multiply multi_dot=linalg.multi_dot
ne=not_equal neg=negative permute=permute_dims pinverse=linalg.pinv qr=linalg.qr slogdet=linalg.slogdet sub=subtract
svd_lowrank=linalg.svd_lowrank swapdims=swapaxes inference_mode=no_grad compiler=tune swish=silu
log_sigmoid=nn.functional.logsigmoid autocast=amp.autocast
"""
_TORCH_OWN = """
addbmm addcdiv addcmul addmm addmv addr adjoint affine_grid_generator alpha_dropout amax amin aminmax as_tensor
baddbmm block_diag bmm cartesian_prod cat celu chain_matmul cholesky_inverse cholesky_solve clamp clamp_max clamp_min
clone combinations conv_tbc diagonal_scatter dist dropout expand fill frac frobenius_norm from_numpy functional_call
gather ger hardshrink histc igamma igammac index_add index_copy index_fill index_put index_reduce index_select
kthvalue logdet masked_fill masked_scatter masked_select matrix_exp mm mode msort mv mvlgamma narrow nonzero_static
norm nuclear_norm pca_lowrank polar prelu renorm repeat_interleave rrelu rsub scalar_tensor select_scatter sgn
slice_scatter split_with_sizes stack_module_state std_mean svd t take_along_dim tensor tensor_split threshold trapz
triangular_solve unbind unsafe_split unsqueeze var_mean view_as_complex view_as_real sparse_coo_tensor sparse_csr_tensor
"""
_TORCH_PROCESS = """
Generator are_deterministic_algorithms_enabled bernoulli binomial default_generator get_default_device
get_default_dtype get_device get_float32_matmul_precision get_num_threads get_rng_state initial_seed is_complex
is_conj is_floating_point is_inference is_neg is_nonzero is_same_size is_signed is_storage is_tensor manual_seed
multinomial normal numel poisson rand rand_like randint randint_like randn randn_like randperm seed set_default_device
set_default_dtype set_float32_matmul_precision set_grad_enabled set_rng_state typename use_deterministic_algorithms
"""
_TORCH_RENAMED = {  # whose names are Python's, or other functions' of the same file
    "complex": "torch_functions:complex_", "range": "torch_functions:range_", "resolve_conj": "torch_functions:resolve",
    "resolve_neg": "torch_functions:resolve", "detach": "methods:detach", "dequantize": "torch_functions:resolve",
    "constant_pad_nd": "torch_functions:constant_pad_nd",
    "unsafe_chunk": "chunk", "unsafe_split_with_sizes": "torch_functions:split_with_sizes",
    "narrow_copy": "torch_functions:narrow", "select_copy": "torch_functions:select_axis",
    "squeeze_copy": "torch_functions:squeeze_copy", "expand_copy": "torch_functions:expand",
    "permute_copy": "permute_dims",
    "t_copy": "torch_functions:t", "transpose_copy": "numpy_functions:transpose",
    "unbind_copy": "torch_functions:unbind",
    "unsqueeze_copy": "torch_functions:unsqueeze", "diagonal_copy": "diagonal", "detach_copy": "methods:detach",
    "alias_copy": "torch_functions:clone", "split_copy": "torch_functions:unsafe_split",
    "split_with_sizes_copy": "torch_functions:split_with_sizes", "view_copy": "methods:view",
    "view_as_real_copy": "torch_functions:view_as_real", "view_as_complex_copy": "torch_functions:view_as_complex",
    "slice_copy": "methods:slice_copy", "native_channel_shuffle": "channel_shuffle",
    "float_power": "numpy_functions:float_power", "ascontiguousarray": "numpy_functions:asanyarray",
    "top_k": "topk", "frombuffer": "numpy_functions:frombuffer",
}
# What torch has at its top as PyTorch's functional forms have it: the same objects.
_TORCH_FUNCTIONAL = """
bilinear binary_cross_entropy_with_logits cosine_embedding_loss cosine_similarity ctc_loss
embedding_bag feature_alpha_dropout feature_dropout=dropout2d group_norm hinge_embedding_loss instance_norm kl_div
margin_ranking_loss pairwise_distance poisson_nll_loss triplet_margin_loss grid_sampler=grid_sample_by_number
grid_sampler_2d=grid_sample_by_number grid_sampler_3d=grid_sample_by_number
adaptive_max_pool1d_with_indices max_pool1d_with_indices
"""


def _pairs(text: str) -> dict[str, str]:
    return {name: path or name for name, _, path in (word.partition("=") for word in text.split())}


def _table() -> dict[str, Alias]:
    rows: dict[str, Alias] = {}
    for name, target in _TORCH_RENAMED.items():
        rows[name] = Alias(name, "torch", target)
    for name, target in _pairs(_TORCH_FUNCTIONAL).items():
        rows[name] = Alias(name, "torch", f"nn.functional.{target}")
    for name in _TORCH_OWN.split():
        rows[name] = Alias(name, "torch", f"torch_functions:{name}")
    for name in _TORCH_PROCESS.split():
        rows[name] = Alias(name, "torch", f"torch_process:{name}")
    for name, target in _pairs(_TORCH_SAME).items():
        rows[name] = Alias(name, "torch", target)
    for name in _NUMPY_OWN.split():
        rows[name] = Alias(name, "numpy", f"numpy_functions:{name}", NOTES.get(name, ""))
    for name, target in _pairs(_NUMPY_SAME).items():
        rows[name] = Alias(name, "numpy", target)
    del rows["arccos_"], rows["compiler"]
    return rows


NOTES = {
    "logspace": "float32 unless dtype= says otherwise", "geomspace": "float32 unless dtype= says otherwise",
    "put": "assigns to the tensor, as x[...] = does", "place": "assigns to the tensor, as x[...] = does",
    "copyto": "assigns to the tensor, as x[...] = does", "fill_diagonal": "assigns to the tensor, as x[...] = does",
    "putmask": "assigns to the tensor, as x[...] = does", "save": "no pickle: an array as .npy, a tree as safetensors",
    "load": "no pickle is read", "may_share_memory": "False: tensors are values", "from_numpy": "a copy of the value",
    "vectorize": "calls the function once for each element", "histogramdd": "computed by NumPy, when the line runs",
}
ALIASES = _table()
TYPES = {  # names of dtypes; a dtype called with a value makes a tensor of it
    "bool_": "bool", "half": "float16", "single": "float32", "double": "float64", "float": "float32", "long": "int64",
    "int": "int32", "short": "int16", "cfloat": "complex64", "cdouble": "complex128", "csingle": "complex64",
    "intp": "int64", "uintp": "uint64", "int_": "int64", "uint": "uint64", "byte": "int8", "ubyte": "uint8",
    "intc": "int32", "uintc": "uint32", "longlong": "int64", "ulonglong": "uint64", "float_": "float64",
    "ushort": "uint16", "complex_": "complex128", "clongdouble": "complex128", "longdouble": "float64",
}
OBJECTS = {  # names that are no functions: what the program sees instead
    "ndarray": "Tensor", "euler_gamma": "spaces:euler_gamma", "NaN": "nan", "Inf": "inf", "PINF": "inf",
    "Size": "spaces:Size", "dtype": "spaces:dtype", "c_": "spaces:c_", "r_": "spaces:r_", "s_": "spaces:s_",
    "mgrid": "spaces:mgrid", "ogrid": "spaces:ogrid", "index_exp": "spaces:index_exp", "errstate": "spaces:errstate",
    "seterr": "spaces:seterr", "geterr": "spaces:geterr", "func": "spaces:func", "cuda": "spaces:cuda",
    "backends": "spaces:backends", "utils": "spaces:utils", "autograd": "autograd:", "masked": "masked:",
    "FloatTensor": "spaces:FloatTensor", "DoubleTensor": "spaces:DoubleTensor", "LongTensor": "spaces:LongTensor",
    "IntTensor": "spaces:IntTensor", "BoolTensor": "spaces:BoolTensor", "floating": "spaces:floating",
    "integer": "spaces:integer", "number": "spaces:number", "inexact": "spaces:inexact",
    "complexfloating": "spaces:complexfloating", "signedinteger": "spaces:signedinteger",
    "unsignedinteger": "spaces:unsignedinteger", "generic": "spaces:generic",
    "set_num_threads": "spaces:set_num_threads",
    "get_num_interop_threads": "torch_process:get_num_threads", "lax": "spaces:lax",
    "strided": "spaces:strided", "contiguous_format": "spaces:contiguous_format",
    "preserve_format": "spaces:preserve_format", "channels_last": "spaces:channels_last",
    "set_num_interop_threads": "spaces:set_num_threads", "True_": "spaces:True_", "False_": "spaces:False_",
    "jit": "spaces:jit",
    "scipy": "spaces:scipy", "stats": "scipy.stats", "signal": "scipy.signal", "ndimage": "scipy.ndimage",
    **{name: f"numpy_objects:{name}" for name in (
        "asfortranarray", "base_repr", "binary_repr", "broadcast", "format_float_positional", "format_float_scientific",
        "lib", "ndenumerate", "ndindex", "nditer", "poly1d", "polynomial", "require", "typing")},
}
ALL = {**ALIASES, **{name: Alias(name, "both", target) for name, target in {**TYPES, **OBJECTS}.items()}}


# NumPy's public names that are not here, by what a program does instead; docs/howto/from_numpy.md lists them.
ABSENT = {
    "use numpy for text, dates and records": """
bytes_ str_ char character strings datetime64 timedelta64 datetime_as_string datetime_data isnat busday_count
busday_offset busdaycalendar is_busday rec recarray record void object_ flexible fromregex""",
    "use arrays of two axes": "asmatrix matrix bmat",
    "use a mask and mo.where": "ma",
    "tensors are values, and memory is the engine's": """
memmap flatiter nested_iters getbufsize setbufsize geterrcall seterrcall""",
    "the dtypes are those of mo": """
complex256 float128 ulong common_type min_scalar_type mintypecode real_if_close typecodes sctypeDict ScalarType
dtypes""",
    "ask numpy about NumPy": """
core ctypeslib emath exceptions f2py get_include info little_endian show_config show_runtime test ufunc""",
}


def find(name: str) -> Any:
    """The object behind a name of another library, or None where Morpho has nothing of this meaning."""
    alias = ALL.get(name)
    return None if alias is None else alias.resolve()


_LEGACY = """
RandomState bytes f get_state hypergeometric integers logseries negative_binomial noncentral_chisquare noncentral_f
power random random_sample ranf rayleigh sample set_state shuffle standard_cauchy standard_exponential standard_gamma
standard_normal standard_t triangular vonmises wald zipf
"""
_SPECIAL = {  # file of morpho/scipy -> what mo.special takes from it
    "integrals": """
agm dawsn ellipe ellipk ellipkm1 erfi exp1 expi expn fresnel k0 k0e k1 k1e kn lambertw owens_t shichi sici spence
voigt_profile wofz""",
    "hypergeometric": """
bdtr bdtrc betaincc betainccinv betaincinv chdtr chdtrc chdtri fdtr fdtrc fdtri gammainccinv gammaincinv gdtr gdtrc
hyp0f1 hyp1f1 hyp2f1 nbdtr nbdtrc pdtr pdtrc stdtr stdtrit""",
    "polynomials": """
assoc_laguerre bernoulli bessel_jn boxcox1p cosdg cotdg euler eval_chebyc eval_chebys eval_chebyt eval_chebyu
eval_gegenbauer eval_genlaguerre eval_hermite eval_hermitenorm eval_jacobi eval_laguerre eval_legendre eval_sh_chebyt
eval_sh_chebyu eval_sh_legendre exprel factorial2 factorialk inv_boxcox1p jn loggamma lpmn lpmn_values lpmv powm1 rgamma
roots_chebyt roots_chebyu roots_hermite roots_hermitenorm roots_laguerre roots_legendre sindg sph_harm_y spherical_jn
stirling2 tandg zetac""",
}
_SPECIAL_RENAMED = {  # PyTorch's names
    "modified_bessel_k0": "integrals.k0", "modified_bessel_k1": "integrals.k1",
    "scaled_modified_bessel_k0": "integrals.k0e", "scaled_modified_bessel_k1": "integrals.k1e",
    "p_roots": "polynomials.roots_legendre", "h_roots": "polynomials.roots_hermite",
    "he_roots": "polynomials.roots_hermitenorm", "l_roots": "polynomials.roots_laguerre",
    "t_roots": "polynomials.roots_chebyt", "u_roots": "polynomials.roots_chebyu",
}
_POLYNOMIALS = """
chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h
hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t
shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w
"""
# Names of parts of `mo`: mo.random.default_rng, mo.linalg.matrix_exp, ...
PARTS = {
    "random": {"default_rng": "generators:default_rng", "Generator": "generators:Generator", "seed": "nn.seed",
               "manual_seed": "torch_process:manual_seed", "rand": "torch_process:rand", "randn": "torch_process:randn",
               **{name: f"legacy:{name}" for name in _LEGACY.split()}},
    "linalg": {"matrix_exp": "linalg.expm", "LinAlgError": "errors.ValueFault", "vander": "linear_algebra:vander",
               "tensorsolve": "linear_algebra:tensorsolve", "tensorinv": "linear_algebra:tensorinv",
               "lu_factor": "linear_algebra:lu_factor", "lu_solve": "linear_algebra:lu_solve",
               "solve_ex": "linear_algebra:solve_ex", "inv_ex": "linear_algebra:inv_ex",
               "cholesky_ex": "linear_algebra:cholesky_ex"},
    "special": {"gamma": "linear_algebra:gamma", "factorial": "linear_algebra:factorial", "round": "round",
                "sinc": "sinc", "j0": "special.bessel_j0", "j1": "special.bessel_j1", "y0": "special.bessel_y0",
                "y1": "special.bessel_y1", "modified_bessel_i0": "special.i0", "modified_bessel_i1": "special.i1",
                "cbrt": "cbrt", "exp10": "linear_algebra:exp10", "gammasgn": "linear_algebra:gammasgn",
                "poch": "linear_algebra:poch", "comb": "linear_algebra:comb", "perm": "linear_algebra:perm",
                "binom": "linear_algebra:binom", "log_expit": "nn.functional.logsigmoid",
                "cosm1": "linear_algebra:cosm1", "radian": "linear_algebra:radian", "huber": "linear_algebra:huber",
                "pseudo_huber": "linear_algebra:pseudo_huber", "boxcox": "linear_algebra:boxcox",
                "logaddexp": "logaddexp", "inv_boxcox": "linear_algebra:inv_boxcox",
                "softplus": "softplus",
                **{name: f"scipy.{file}.{name}" for file, names in _SPECIAL.items() for name in names.split()},
                **{name: f"scipy.{target}" for name, target in _SPECIAL_RENAMED.items()},
                **{name: f"linear_algebra:{name}" for name in _POLYNOMIALS.split()}},
    "fft": {name: f"linear_algebra:{name}" for name in ("hfft2", "hfftn", "ihfft2", "ihfftn")},
    "nn": {}, "optim": {"lr_scheduler": "optim"}, "sparse": {"mm": "sparse.matmul"}, "tree": {}, "amp": {},
}


def find_in(part: str, name: str) -> Any:
    target = PARTS.get(part, {}).get(name)
    return None if target is None else Alias(name, "both", target).resolve()

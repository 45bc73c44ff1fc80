"""Names that other libraries use for what Morpho has under another one, for the hint of an error.

>>> advice("concatenate")
'use mo.concat'
>>> mo.ones(3).view(1, 3)
Traceback (most recent call last):
AttributeError: Tensor has no attribute 'view'. Hint: use x.reshape(...).
"""

from __future__ import annotations

import sys
from typing import Any

from morpho.base import errors

SAME = {  # another library's name -> Morpho's
    "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
    "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "array": "asarray",
    "ascontiguousarray": "asarray", "bitwise_not": "bitwise_invert", "bool_": "bool", "cat": "concat",
    "concatenate": "concat", "conjugate": "conj", "cumprod": "cumulative_prod", "cumsum": "cumulative_sum",
    "double": "float64", "fabs": "abs", "half": "float16",
    "invert": "bitwise_invert", "jit": "compile", "left_shift": "bitwise_left_shift", "mod": "remainder",
    "power": "pow", "product": "prod", "right_shift": "bitwise_right_shift", "single": "float32",
    "true_divide": "divide", "gather": "take_along_axis",
    "index_select": "take", "mm": "matmul",
    "bmm": "matmul", "swish": "silu", "norm": "linalg.vector_norm", "inv": "linalg.inv", "svd": "linalg.svd",
    "trace": "linalg.trace", "cross": "linalg.cross", "rand": "random.uniform",
    "randn": "random.normal", "randint": "random.randint", "manual_seed": "nn.seed", "seed": "random.key",
    "from_numpy": "asarray", "as_tensor": "asarray",
    "broadcast_tensors": "broadcast_arrays", "movedim": "moveaxis", "permute": "permute_dims",
    "unsqueeze": "expand_dims", "clamp": "clip", "mul": "multiply", "sub": "subtract", "div": "divide",
    "neg": "negative", "eq": "equal", "ne": "not_equal", "gt": "greater", "lt": "less", "ge": "greater_equal",
    "le": "less_equal", "long": "int64", "short": "int16", "randperm": "random.permutation",
    "masked_fill": "where", "inference_mode": "no_grad", "load": "weights.load", "save": "weights.save",
    "Parameter": "nn.Parameter", "Module": "nn.Module", "DataLoader": "data.DataLoader",
    "scaled_dot_product_attention": "attention", "top_k": "topk", "tree_map": "tree.map",
    "tree_flatten": "tree.flatten", "tree_unflatten": "tree.unflatten", "tree_leaves": "tree.leaves",
    "tree_structure": "tree.structure", "tree_reduce": "tree.reduce", "tree_transpose": "tree.transpose",
    "lstsq": "linalg.lstsq", "autocast": "amp.autocast", "index_add": "scatter_add",
}
OTHERWISE = {  # what has no name of its own
    "copy": "mo.asarray(x, copy=True)",
    "float_power": "mo.pow(x.astype(mo.float64), y)", "set_printoptions": "np.set_printoptions, which tensors follow",
    "indices": "mo.meshgrid(mo.arange(m), mo.arange(n), indexing='ij')",
    "jacobian": "mo.jacrev(f), or mo.jacfwd(f) where the argument is smaller than the result",
    "dot": "mo.matmul(a, b), or mo.vecdot(a, b)", "float": "mo.float32",
    "identity": "mo.eye(n)", "int": "mo.int64",
    "inner": "mo.tensordot(a, b, axes=((-1,), (-1,))), mo.vecdot(a, b) for vectors",
    "frombuffer": "mo.asarray(np.frombuffer(data, dtype))",
    "ndim": "x.ndim",
    "shape": "x.shape", "size": "x.size",
    "transpose": "x.T, or mo.permute_dims(x, axes)",
    "lax": "mo itself: mo.scan, mo.cond, mo.while_loop", "numpy": "mo itself",
    "device_put": "x.to(device)", "block_until_ready": "mo.realise(x)",
    **dict.fromkeys(("pmap", "shard_map"), "one process: the engine uses all its cores"),
    "autograd": "loss.backward(), or mo.grad", "cuda": "mo.devices() for what is there, x.to('cuda') to go there",
    "is_tensor": "isinstance(x, mo.Tensor)",
    "multinomial": "mo.random.choice with p=, or mo.random.categorical of logits",
    "numel": "x.size", "set_grad_enabled": "mo.no_grad, or mo.enable_grad",
    "set_num_threads": "`with mo.settings(threads=n):`, or MORPHO_THREADS",
    "utils": "mo.data for batches, mo.nn.checkpoint to save memory",
    "view": "mo.reshape(x, shape)",
    "logspace": "10 ** mo.linspace(a, b, n)", "rint": "mo.round(x)",
    "fix": "mo.trunc(x)",
    "savez": "mo.weights.save",
    "unbind": "mo.unstack(x)", "mv": "mo.matmul(a, x)", "addmm": "c + a @ b: it is one kernel",
    "interpolate": "mo.nn.interpolate",
    "dropout": "mo.nn.Dropout", "log_sigmoid": "-mo.softplus(-x)", "set_default_dtype": "dtype= where a tensor is made",
}
_ADAMW = "mo.optim.AdamW, or a rule of your own: a class derived from mo.optim.Optimizer"
_LAYER = "(..., norm_first=False, activation='relu'), whose boolean mask is True where a query may look"
NN = {
    "functional": "mo.relu, mo.softmax, mo.nn.mse_loss, ...: functions are in mo and mo.nn",
    "utils": "mo.optim.clip_grad_norm for gradients; model.parameters() gives the tensors",
    "clip_grad_norm_": "mo.optim.clip_grad_norm",
    "MultiheadAttention": "mo.nn.MultiHeadAttention, whose boolean mask is True where a query may look, and which "
                          "gives its output alone",
    "TransformerEncoderLayer": f"mo.nn.TransformerBlock{_LAYER}",
    "TransformerDecoderLayer": f"mo.nn.TransformerDecoderBlock{_LAYER}",
    "TransformerEncoder": "mo.nn.Sequential of mo.nn.TransformerBlock",
    "TransformerDecoder": "mo.nn.ModuleList of mo.nn.TransformerDecoderBlock",
    "Transformer": "mo.nn.TransformerBlock, or mo.models.create('prenorm-small')",
    "ParameterDict": "a dict of mo.nn.Parameter as an attribute",
    "Softmax2d": "mo.nn.Softmax(dim=-3)", "LazyLinear": "mo.nn.Linear",
    "BatchNorm3d": "mo.nn.GroupNorm, or BatchNorm2d",
    "Dropout1d": "mo.nn.Dropout2d", "ConvTranspose3d": "mo.conv_transpose3d with a weight of your own",
    "rnn": "lengths= of mo.nn.RNN, LSTM and GRU", "upsample": "mo.nn.interpolate",
    **dict.fromkeys(("pack_padded_sequence", "pad_packed_sequence", "PackedSequence"),
                    "lengths= of mo.nn.RNN, LSTM and GRU: outputs beyond a length are zeros"),
    "DataParallel": "one process: the engine uses all its cores", "Tensor": "mo.Tensor",
    "no_grad": "mo.no_grad", "relu": "mo.relu", "gelu": "mo.gelu", "softmax": "mo.softmax", "embedding": "mo.embedding",
    "layer_norm": "mo.layer_norm", "conv2d": "mo.conv2d", "log_softmax": "mo.log_softmax",
    "scaled_dot_product_attention": "mo.attention", "one_hot": "mo.one_hot", "silu": "mo.silu",
    "pad": "mo.pad(x, widths), a pair for each axis in their order, where PyTorch counts from the last axis",
    "sigmoid": "mo.sigmoid", "tanh": "mo.tanh", "max_pool2d": "mo.max_pool2d", "avg_pool2d": "mo.avg_pool2d",
    "rms_norm": "mo.rms_norm", "manual_seed": "mo.nn.seed",
}
OPTIM = {
    "lr_scheduler": "mo.optim.StepLR, mo.optim.CosineAnnealingLR, ...: schedules are in mo.optim itself",
    "Schedule": "mo.optim.LRScheduler", "Group": "mo.optim.ParamGroup", "clip_grad_norm_": "mo.optim.clip_grad_norm",
    "clip_grad_value_": "mo.optim.clip_grad_value",
    "CyclicLR": "mo.optim.LambdaLR", "MultiplicativeLR": "mo.optim.LambdaLR",
    "get_cosine_schedule_with_warmup": "mo.optim.WarmupCosineLR",
    "get_linear_schedule_with_warmup": "mo.optim.WarmupLinearLR",
    "swa_utils": "copy.deepcopy(model) and load_state_dict with the averages",
    **dict.fromkeys(("Adadelta", "Adamax", "RAdam", "ASGD", "Rprop", "SparseAdam", "Muon", "LAMB"), _ADAMW),
}
AMP = {
    "autocast_mode": "mo.amp.autocast", "grad_scaler": "mo.amp.GradScaler", "scale_loss": "mo.amp.GradScaler",
    "initialize": "mo.amp.autocast and mo.amp.GradScaler", "custom_fwd": "mo.amp.autocast inside the function",
}
TENSOR = {
    "view": "x.reshape(...)", "view_as": "x.reshape(y.shape)", "reshape_as": "x.reshape(y.shape)",
    "permute": "mo.permute_dims(x, axes)", "transpose": "x.T, x.mT, or mo.permute_dims(x, axes)", "t": "x.T",
    "expand": "mo.broadcast_to(x, shape)", "expand_as": "mo.broadcast_to(x, y.shape)",
    "unsqueeze": "mo.expand_dims(x, axis=axis), or x[:, None]", "flatten": "x.reshape(-1)", "ravel": "x.reshape(-1)",
    "type": "x.astype(dtype)", "float": "x.astype('float32')", "double": "x.astype('float64')",
    "half": "x.astype('float16')", "bfloat16": "x.astype('bfloat16')", "int": "x.astype('int32')",
    "long": "x.astype('int64')", "bool": "x.astype('bool')", "cpu": "x.to('cpu')",
    "cuda": "x.to('cuda')", "numel": "x.size", "dim": "x.ndim",
    "copy": "mo.asarray(x, copy=True); tensors are values, so that a copy is seldom needed",
    "clone": "x itself: tensors are values, and nothing that is done to one changes another",
    "contiguous": "x itself: the engine sees to the layout", "is_contiguous": "x.strides", "stride": "x.strides",
    "data": "x.detach(); parameter.assign(...) gives a parameter another value", "grad_fn": "x.requires_grad",
    "is_cuda": "x.device", "is_leaf": "x.requires_grad", "data_ptr": "x.numpy().ctypes.data", "dot": "x @ y",
    "zero_": "mo.zeros_like(x)", "fill_": "mo.full_like(x, value)", "copy_": "y, or parameter.assign(y)",
    "norm": "mo.linalg.vector_norm(x)",
    "fill": "mo.full_like(x, value)", "masked_fill": "mo.where(mask, value, x)",
    "gather": "mo.take_along_axis(x, indices, axis=axis)",
    "index_select": "mo.take(x, indices, axis=axis)", "amax": "x.max(axis=axis)", "amin": "x.min(axis=axis)",
    "nelement": "x.size", "tobytes": "x.numpy().tobytes()",
    "uniform_": "mo.random.uniform(key, shape), or mo.nn.init",
    "normal_": "mo.random.normal(key, shape), or mo.nn.init",
    "detach_": "x.detach()",
    "block_until_ready": "x.realise()", "share_memory_": "x itself", "pin_memory": "x itself",
    "new_zeros": "mo.zeros(shape)",
}
MODULE = {
    "float": "model.astype('float32')", "double": "model.astype('float64')",
    "half": "model.astype('float16')", "bfloat16": "model.astype('bfloat16')", "type": "model.astype(dtype)",
    "cuda": "the model itself: it lies in the memory of the CPU", "cpu": "the model itself: it lies there already",
    "register_parameter": "self.name = nn.Parameter(value)",
    "add_module": "setattr(self, name, module), or nn.ModuleDict", "register_module": "setattr(self, name, module)",
    "extra_repr": "describe()", "compile": "mo.compile(lambda x: model(x))", "save_pretrained": "mo.models.save",
    "from_pretrained": "mo.models.load", "get_parameter": "dict(model.named_parameters())[name]",
    "get_submodule": "dict(model.named_modules())[name]", "share_memory": "the model itself",
    "register_full_backward_hook": "x.register_hook(hook) on a tensor",
    "register_backward_hook": "x.register_hook(hook) on a tensor",
    "set_extra_state": "nn.Buffer", "num_parameters": "model.parameter_count()",
}
OPTIMIZER = {
    "groups": "opt.param_groups", "add_group": "opt.add_param_group", "state": "opt.state_dict()['slots']",
    "lr": "opt.param_groups[0]['lr']", "params": "opt.parameters()",
    "param_group": "opt.param_groups", "minimize": "loss.backward() and opt.step()",
}
LINALG = {
    "dot": "mo.matmul, or mo.vecdot", "lu_factor": "mo.linalg.lu", "cho_factor": "mo.linalg.cholesky",
    "pinvh": "mo.linalg.pinv", "matrix_exp": "mo.linalg.expm", "solve_ex": "mo.linalg.solve",
    "solveh_banded": "mo.sparse.cg, of a mo.sparse.diags matrix", "pca_lowrank": "mo.linalg.svd_lowrank",
}
_KEY = "(key, shape) with key = mo.random.key(seed)"
RANDOM = {
    "rand": f"mo.random.uniform{_KEY}", "random": f"mo.random.uniform{_KEY}", "randn": f"mo.random.normal{_KEY}",
    "standard_normal": f"mo.random.normal{_KEY}", "seed": "mo.random.key(seed), and give the key to each draw",
    "manual_seed": "mo.random.key(seed), and give the key to each draw; mo.nn.seed(seed) is for layers",
    "default_rng": "mo.random.key(seed), and give the key to each draw", "shuffle": "mo.random.permutation(key, x)",
    "PRNGKey": "mo.random.key(seed)", "integers": "mo.random.randint(key, shape, low, high)",
}
TREE = {f"tree_{name}": f"mo.tree.{name}" for name in ("map", "flatten", "unflatten", "leaves", "reduce", "structure",
                                                       "transpose")}
SPECIAL = {
    "gamma": "mo.exp(mo.special.lgamma(x)) for positive x", "factorial": "mo.exp(mo.special.lgamma(n + 1))",
    "j0": "mo.special.bessel_j0", "j1": "mo.special.bessel_j1", "y0": "mo.special.bessel_y0",
    "y1": "mo.special.bessel_y1", "igamma": "mo.special.gammainc", "igammac": "mo.special.gammaincc",
    "round": "mo.round", "sinc": "mo.sinc",
}
_CSR, _CSC, _COO = (f"mo.sparse.{name}" for name in ("csr(data, indices, indptr, shape)",
                                                     "csc(data, indices, indptr, shape)",
                                                     "coo(data, (rows, columns), shape)"))
SPARSE = {
    "csr_matrix": _CSR, "csr_array": _CSR, "sparse_csr_tensor": _CSR, "csc_matrix": _CSC, "csc_array": _CSC,
    "coo_matrix": _COO, "coo_array": _COO, "sparse_coo_tensor": _COO, "mm": "mo.sparse.matmul",
    "identity": "mo.sparse.eye", "addmm": "a @ x + y, which is one kernel", "sampled_addmm": "mo.sparse.sddmm",
    "minres": "mo.sparse.gmres or cg", "eigsh": "mo.sparse.lanczos or lobpcg",
    "spsolve_triangular": "mo.sparse.solve_triangular", "spilu": "mo.sparse.ilu0", "mmread": "mo.sparse.read_mm",
    "mmwrite": "mo.sparse.write_mm", "issparse": "mo.sparse.is_sparse", "tril": "mo.sparse.triangle(a)",
    "triu": "mo.sparse.triangle(a, upper=True)",
    "spsolve": "mo.sparse.cg, bicgstab or gmres; there is no direct solver of general sparse matrices",
}
PLACES = {"sparse": SPARSE, "tree": TREE, "nn": NN, "optim": OPTIM, "amp": AMP, "Tensor": TENSOR, "Module": MODULE,
          "Optimizer": OPTIMIZER, "linalg": LINALG, "random": RANDOM, "special": SPECIAL}


def advice(name: str, place: str = "mo") -> str:
    """What to use instead of a name that Morpho, or a part of it, does not have; empty where nothing comes close."""
    if place == "mo":
        if name in SAME:
            return f"use mo.{SAME[name]}"
        if isinstance(getattr(errors, name, None), type):
            return f"use mo.errors.{name}"
        return f"use {OTHERWISE[name]}" if name in OTHERWISE else ""
    if name in PLACES[place]:
        return f"use {PLACES[place][name]}"
    return _function(name) if place == "Tensor" else ""


def _function(name: str) -> str:
    """A method of other libraries' tensors that is a function here; one that ends in _ would change its tensor."""
    functions = sys.modules["morpho"]
    plain = name.removesuffix("_")
    if name.startswith("_"):
        return ""
    found = SAME.get(plain, plain)
    if found not in functions.__all__ or not callable(getattr(functions, found)):
        return ""
    if plain != name:
        return f"use x = mo.{found}(x, ...): tensors are values"
    return f"use mo.{found}(x, ...)"


def missing(place: str, name: str, owner: Any, title: str = "") -> AttributeError:
    """The error to raise for an attribute that is not there: with the hint of this table, or with Python's own guess
    among the names of `owner`."""
    hint = advice(name, place)
    text = f"{title or place} has no attribute {name!r}"
    return AttributeError(f"{text}. Hint: {hint}.") if hint else AttributeError(text, name=name, obj=owner)


def tensor_attribute(self: Any, name: str) -> Any:
    """`Tensor.__getattr__`: only what is not there comes here."""
    if name == "_track":  # unset in what native code makes: nothing is tracked, and asking is cheap
        return None
    raise missing("Tensor", name, self, type(self).__name__)


def module_attribute(place: str, module: str) -> Any:
    """`__getattr__` for a module of Morpho, of the table's place of this name."""

    def __getattr__(name: str) -> Any:
        raise missing(place, name, sys.modules[module], f"module '{module}'")

    return __getattr__


class MissingModules:
    """Stands last among those whom Python asks for a module, so that it is asked only for what is not there: names of
    these tables are an error with their hint, in `import morpho.nn.functional` and `from morpho import cat` alike."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        parent, _, name = fullname.rpartition(".")
        place = "mo" if parent == "morpho" else parent.removeprefix("morpho.")
        if not parent.startswith("morpho") or (place != "mo" and place not in PLACES):
            return
        hint = advice(name, place)
        if not hint and place == "mo" and name in sys.modules["morpho"].__all__:
            hint = f"write `from morpho import {name}`, or mo.{name} after `import morpho as mo`"
        if hint:  # without its name=..., for which `from morpho import cat` would have an error without a hint
            raise ModuleNotFoundError(f"No module named {fullname!r}. Hint: {hint}.")


def hint_imports() -> None:
    """Have `import` answer for modules that other libraries have."""
    if not any(isinstance(finder, MissingModules) for finder in sys.meta_path):
        sys.meta_path.append(MissingModules())

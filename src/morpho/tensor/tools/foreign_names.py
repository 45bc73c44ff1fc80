"""Names of other libraries that Morpho does not have, for the hint of an error. Those that it has are in `mo.spelling`.

>>> advice("tree_map")
'use mo.tree.map'
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

from morpho.base import errors

SAME = {  # another library's name -> Morpho's
    "product": "prod",
    "inv": "linalg.inv",
    "Parameter": "nn.Parameter", "Module": "nn.Module", "DataLoader": "data.DataLoader",
    "scaled_dot_product_attention": "attention", "tree_map": "tree.map",
    "tree_flatten": "tree.flatten", "tree_unflatten": "tree.unflatten", "tree_leaves": "tree.leaves",
    "tree_structure": "tree.structure", "tree_reduce": "tree.reduce", "tree_transpose": "tree.transpose",
}
OTHERWISE = {  # what has no name of its own
    "jacobian": "mo.jacrev(f), or mo.jacfwd(f) where the argument is smaller than the result",
    "numpy": "mo itself",
    "device_put": "x.to(device)", "block_until_ready": "mo.realise(x)",
    **dict.fromkeys(("pmap", "shard_map"), "one process: the engine uses all its cores"),
    "view": "mo.reshape(x, shape)",
    "interpolate": "mo.nn.interpolate",
}
_ADAMW = "mo.optim.AdamW, or a rule of your own: a class derived from mo.optim.Optimizer"
_LAYER = "(..., norm_first=False, activation='relu'), whose boolean mask is True where a query may look"
NN = {
    "clip_grad_norm_": "mo.optim.clip_grad_norm",
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
    "Schedule": "mo.optim.LRScheduler", "Group": "mo.optim.ParamGroup", "clip_grad_norm_": "mo.optim.clip_grad_norm",
    "clip_grad_value_": "mo.optim.clip_grad_value",
    "get_cosine_schedule_with_warmup": "mo.optim.WarmupCosineLR",
    "get_linear_schedule_with_warmup": "mo.optim.WarmupLinearLR",
    "swa_utils": "copy.deepcopy(model) and load_state_dict with the averages",
    **dict.fromkeys(("SparseAdam", "LAMB"), _ADAMW),
}
AMP = {
    "autocast_mode": "mo.amp.autocast", "grad_scaler": "mo.amp.GradScaler", "scale_loss": "mo.amp.GradScaler",
    "initialize": "mo.amp.autocast and mo.amp.GradScaler", "custom_fwd": "mo.amp.autocast inside the function",
}
TENSOR = {
    "data_ptr": "x.numpy().ctypes.data",
    "block_until_ready": "x.realise()",

}
MODULE = {
    "extra_repr": "describe()", "compile": "mo.compile(lambda x: model(x))", "save_pretrained": "mo.models.save",
    "from_pretrained": "mo.models.load",
    "share_memory": "the model itself",
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
    "dot": "mo.matmul, or mo.vecdot", "cho_factor": "mo.linalg.cholesky",
    "pinvh": "mo.linalg.pinv",
    "solveh_banded": "mo.sparse.cg, of a mo.sparse.diags matrix", "pca_lowrank": "mo.linalg.svd_lowrank",
}
_KEY = "(key, shape) with key = mo.random.key(seed)"
RANDOM = {
    "PRNGKey": "mo.random.key(seed)",
}
TREE = {f"tree_{name}": f"mo.tree.{name}" for name in ("map", "flatten", "unflatten", "leaves", "reduce", "structure",
                                                       "transpose")}
SPECIAL = {
    "igamma": "mo.special.gammainc", "igammac": "mo.special.gammaincc",

}
_CSR, _CSC, _COO = (f"mo.sparse.{name}" for name in ("csr(data, indices, indptr, shape)",
                                                     "csc(data, indices, indptr, shape)",
                                                     "coo(data, (rows, columns), shape)"))
SPARSE = {
    "csr_matrix": _CSR, "csr_array": _CSR, "sparse_csr_tensor": _CSR, "csc_matrix": _CSC, "csc_array": _CSC,
    "coo_matrix": _COO, "coo_array": _COO, "sparse_coo_tensor": _COO,
    "identity": "mo.sparse.eye", "addmm": "a @ x + y, which is one kernel", "sampled_addmm": "mo.sparse.sddmm",
    "minres": "mo.sparse.gmres or cg", "eigsh": "mo.sparse.lanczos or lobpcg",
    "spsolve_triangular": "mo.sparse.solve_triangular", "spilu": "mo.sparse.ilu0", "mmread": "mo.sparse.read_mm",
    "mmwrite": "mo.sparse.write_mm", "issparse": "mo.sparse.is_sparse", "tril": "mo.sparse.triangle(a)",
    "triu": "mo.sparse.triangle(a, upper=True)",
    "spsolve": "mo.sparse.cg, bicgstab or gmres; there is no direct solver of general sparse matrices",
}
PLACES = {"sparse": SPARSE, "tree": TREE, "nn": NN, "optim": OPTIM, "amp": AMP, "Tensor": TENSOR, "Module": MODULE,
          "Optimizer": OPTIMIZER, "linalg": LINALG, "random": RANDOM, "special": SPECIAL,
          "fft": {}}


def advice(name: str, place: str = "mo") -> str:
    """Suggestion for a name that Morpho, or a part of it, does not have; empty if nothing comes close."""
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


tensor_methods: list[Callable[[str], Any]] = []  # of `mo.spelling`: name -> what to set on the class, or None
space_names: list[Callable[[str, str], Any]] = []  # (part of `mo`, name) -> what `mo.spelling` has, or None
more_names: list[Callable[[], list[str]]] = []  # those that `tensor_methods` knows, for completion


_UNSET = frozenset({"_track", "_base", "_key"})  # slots that are unset in most tensors, and asked for often


def tensor_attribute(self: Any, name: str) -> Any:
    """`Tensor.__getattr__`: only what is not there comes here. A method that NumPy's or PyTorch's tensors have is put
    on the class, so that it is there from then on."""
    if name in _UNSET:
        return None
    if not name.startswith("_"):
        for methods in tensor_methods:
            if (method := methods(name)) is not None:
                owner = next(base for base in type(self).__mro__ if base.__name__ == "Tensor")
                setattr(owner, name, method)
                return getattr(self, name)
    raise missing("Tensor", name, self, type(self).__name__)


def tensor_names(self: Any) -> list[str]:
    """`Tensor.__dir__`: with the methods that are made when they are first asked for."""
    return [*object.__dir__(self), *[name for names in more_names for name in names()]]


def module_attribute(place: str, module: str) -> Any:
    """`__getattr__` for a module of Morpho, of the table's place of this name."""

    def __getattr__(name: str) -> Any:
        if not name.startswith("_"):
            for names in space_names:
                if (value := names(place, name)) is not None:
                    return value
        raise missing(place, name, sys.modules[module], f"module '{module}'")

    return __getattr__


MODULES = {  # modules of PyTorch that are namespaces of `mo`: their names in `mo`
    "optim.lr_scheduler": "optim", "utils": "utils", "utils.data": "data", "cuda": "cuda",
    "cuda.amp": "amp", "autograd": "autograd", "nn.utils.rnn": "nn.utils.rnn",
    "nn.parameter": "nn", "nn.modules": "nn", "nn.init": "nn.init", "distributions.normal": "distributions",
    "distributions.categorical": "distributions", "distributions.multivariate_normal": "distributions",
    "utils.checkpoint": "utils.checkpoint", "autograd.function": "autograd",
    "autograd.functional": "autograd.functional",
    "func": "func", "amp": "amp", "fft": "fft", "linalg": "linalg", "special": "special",
}


class SpaceLoader:
    """Makes a module of a namespace of `mo`, for `import` alone."""

    def __init__(self, path: str) -> None:
        self.path = path

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        source: Any = sys.modules["morpho"]
        for part in self.path.split("."):
            source = getattr(source, part)
        module.__path__ = []
        module.__getattr__ = lambda name: getattr(source, name)


class MissingModules:
    """Stands last among those whom Python asks for a module, so that it is asked only for what is not there: PyTorch's
    modules are namespaces here, and names of these tables are an error with their hint, in `import morpho.nn.rnn` and
    `from morpho import tree_map` alike."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        parent, _, name = fullname.rpartition(".")
        if (source := MODULES.get(fullname.removeprefix("morpho."))) is not None and fullname.startswith("morpho."):
            return ModuleSpec(fullname, SpaceLoader(source), is_package=True)  # type: ignore[arg-type]
        place = "mo" if parent == "morpho" else parent.removeprefix("morpho.")
        if not parent.startswith("morpho") or (place != "mo" and place not in PLACES):
            return None
        hint = advice(name, place)
        if not hint and place == "mo" and name in sys.modules["morpho"].__all__:
            hint = f"write `from morpho import {name}`, or mo.{name} after `import morpho as mo`"
        if hint:  # without its name=..., for which `from morpho import cat` would have an error without a hint
            raise ModuleNotFoundError(f"No module named {fullname!r}. Hint: {hint}.")
        return None


def hint_imports() -> None:
    """Have `import` answer for modules that other libraries have."""
    if not any(isinstance(finder, MissingModules) for finder in sys.meta_path):
        sys.meta_path.append(MissingModules())

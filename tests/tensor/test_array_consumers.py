"""Other libraries take tensors, and tensors take other libraries' arrays: what `docs/interop.md` says."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, ValueFault
from morpho.tensor.interop.libraries.arrow import column


@pytest.fixture
def x(rng: np.random.Generator) -> Any:
    return mo.asarray(rng.standard_normal((6, 4)).astype(np.float32), copy=True)


def address_of(tensor: Any) -> int:
    return int(tensor.elements().address)


# -- dispatchers -------------------------------------------------------------------------------------------------------
def test_einops_takes_tensors(x: Any) -> None:
    einops = pytest.importorskip("einops")
    array = x.numpy()
    for function, pattern, sizes in ((einops.rearrange, "(a b) c -> a c b", {"a": 2}),
                                     (einops.rearrange, "a b -> b a", {}), (einops.repeat, "a b -> a b c", {"c": 3}),
                                     (einops.repeat, "a b -> (a 2) b", {})):
        found = function(x, pattern, **sizes)
        assert isinstance(found, mo.Tensor)
        assert np.array_equal(found.numpy(), function(array, pattern, **sizes))
    for operation in ("mean", "sum", "max", "min", "prod"):
        found = einops.reduce(x, "(a b) c -> a c", operation, b=2)
        assert isinstance(found, mo.Tensor)
        assert np.allclose(found.numpy(), einops.reduce(array, "(a b) c -> a c", operation, b=2), rtol=1e-5)
    assert np.allclose(einops.einsum(x, x, "a b, c b -> a c").numpy(), array @ array.T, rtol=1e-4, atol=1e-6)
    packed, shapes = einops.pack([x, x[:2]], "* b")
    assert packed.shape == (8, 4) and [part.shape for part in einops.unpack(packed, shapes, "* b")] == [(6, 4), (2, 4)]
    compiled = mo.compile(lambda x: einops.rearrange(x, "a b -> (b a)") * 2)
    assert np.array_equal(compiled(x).numpy(), array.T.reshape(-1) * 2)


def test_opt_einsum_takes_tensors(x: Any) -> None:
    opt_einsum = pytest.importorskip("opt_einsum")
    array = x.numpy()
    found = opt_einsum.contract("ab,cb,cd->ad", x, x, x)
    assert isinstance(found, mo.Tensor)
    assert np.allclose(found.numpy(), array @ array.T @ array, rtol=1e-4, atol=1e-5)
    expression = opt_einsum.contract_expression("ab,bc->ca", (6, 4), (4, 6))
    assert isinstance(expression(x, x.T, backend="morpho"), mo.Tensor)
    assert np.allclose(opt_einsum.contract("ab,ab->b", x, x).numpy(), (array * array).sum(0), rtol=1e-5)


@pytest.mark.parametrize("order", ["import morpho as mo, einops, opt_einsum",
                                   "import einops, opt_einsum, morpho as mo"])
def test_backends_are_there_whichever_is_imported_first(order: str) -> None:
    pytest.importorskip("einops")
    pytest.importorskip("opt_einsum")
    program = (f"{order}\nx = mo.ones((2, 3))\nassert einops.rearrange(x, 'a b -> b a').shape == (3, 2)\n"
               "assert opt_einsum.contract('ab,bc,cd->ad', x, x.T, x).shape == (2, 3)\n"
               "assert einops._backends.__spec__.loader.get_source('einops._backends')")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- columns, by Arrow's C data interface ------------------------------------------------------------------------------
NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")


@pytest.mark.parametrize("name", NUMBERS)
def test_a_column_of_numbers_is_borrowed(name: str) -> None:
    nanoarrow = pytest.importorskip("nanoarrow")
    given = nanoarrow.c_array([1, 2, 3, 4], getattr(nanoarrow, name)())
    found = mo.asarray(given, copy=False)
    assert found.dtype == getattr(mo, name) and found.tolist() == [1, 2, 3, 4]
    assert address_of(found) == given.buffers[1]
    assert mo.asarray(given[1:3], copy=False).tolist() == [2, 3]
    kept = mo.asarray(given)  # a value of its own
    assert address_of(kept) != given.buffers[1] and kept.tolist() == [1, 2, 3, 4]


def test_a_column_lives_as_long_as_its_tensor() -> None:
    nanoarrow = pytest.importorskip("nanoarrow")
    found = mo.asarray(nanoarrow.c_array(list(range(1000)), nanoarrow.int64()), copy=False)
    gc.collect()
    waste = [nanoarrow.c_array([7] * 1000, nanoarrow.int64()) for _ in range(20)]
    assert found.tolist() == list(range(1000)) and waste


def test_what_is_no_number_is_refused_by_a_sentence() -> None:
    nanoarrow = pytest.importorskip("nanoarrow")
    for values, kind, error, says in (
            ([1, None, None], nanoarrow.int32(), ValueFault, "has 2 nulls of 3"),
            (["a", "b"], nanoarrow.string(), DTypeError, "holds strings"),
            ([b"a"], nanoarrow.binary(), DTypeError, "holds strings or bytes")):
        with pytest.raises(error, match=says):
            mo.asarray(nanoarrow.c_array(values, kind))


def test_bits_are_unpacked_and_cannot_be_borrowed() -> None:
    nanoarrow = pytest.importorskip("nanoarrow")
    given = nanoarrow.c_array([True, False, True] * 5, nanoarrow.bool_())
    assert mo.asarray(given).tolist() == [True, False, True] * 5
    with pytest.raises(ValueFault, match="without a copy"):
        mo.asarray(given, copy=False)


def test_a_stream_of_several_pieces_is_joined() -> None:
    nanoarrow = pytest.importorskip("nanoarrow")
    pieces = nanoarrow.Array.from_chunks([nanoarrow.c_array([1.0, 2.0], nanoarrow.float64()),
                                          nanoarrow.c_array([3.0], nanoarrow.float64())])
    assert mo.asarray(pieces).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueFault, match="2 pieces"):
        mo.asarray(pieces, copy=False)


def test_pyarrow(x: Any) -> None:
    pa = pytest.importorskip("pyarrow", reason="too large for the tests' extra")
    given = pa.array([1.0, 2.0, 3.0, 4.0])
    found = mo.asarray(given, copy=False)
    assert address_of(found) == given.buffers()[1].address
    assert mo.asarray(given[1:3], copy=False).tolist() == [2.0, 3.0]
    assert mo.asarray(pa.chunked_array([[1], [2, 3]])).tolist() == [1, 2, 3]
    assert mo.asarray(pa.array([[1.0, 2.0], [3.0, 4.0]])).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert mo.asarray(pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64(), 2)), copy=False).shape == (2, 2)
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(24.0).reshape(2, 3, 4))
    assert np.array_equal(mo.asarray(tensors).numpy(), np.arange(24.0).reshape(2, 3, 4))
    assert mo.asarray(pa.table({"a": [1, 2], "b": [0.5, 1.5]})).tolist() == [[1.0, 0.5], [2.0, 1.5]]
    for odd, error, says in ((pa.array([[1], [1, 2]]), ShapeError, "different lengths, 1 to 2"),
                             (pa.array(["a", "b"]).dictionary_encode(), DTypeError, "dictionary-encoded"),
                             (pa.array([1], pa.timestamp("s")), DTypeError, "dates or times"),
                             (pa.array([None]), DTypeError, "nothing but nulls|nulls"),
                             (pa.table({"a": [1, None]}), ValueFault, "column 'a' has 1 nulls"),
                             (pa.table({"s": ["x"]}), DTypeError, "column 's' holds strings")):
        with pytest.raises((error, ValueFault), match=says):
            mo.asarray(odd)
    compiled = mo.compile(lambda a: a.sum())
    assert compiled(given).item() == 10.0
    assert column(pa.array([], pa.int32())).size == 0


def test_pandas() -> None:
    pd = pytest.importorskip("pandas", reason="too large for the tests' extra")
    frame = pd.DataFrame({"a": [1.0, 2.0, np.nan], "b": [1, 2, 3], "s": ["x", "y", "z"]})
    borrowed = mo.asarray(frame["a"], copy=False)
    assert address_of(borrowed) == frame["a"].to_numpy().ctypes.data
    assert mo.asarray(frame["b"]).tolist() == [1, 2, 3] and mo.asarray(frame[["a", "b"]]).shape == (3, 2)
    assert mo.asarray(pd.Series([1, 2], dtype="Int64")).tolist() == [1, 2]
    for odd, error, says in ((frame["s"], DTypeError, "which are no numbers"),
                             (pd.Series([1, None], dtype="Int64"), ValueFault, "1 elements of the Series are missing"),
                             (pd.Series(pd.to_datetime(["2020-01-01"])), DTypeError, "datetime64")):
        with pytest.raises(error, match=says):
            mo.asarray(odd)


def test_polars() -> None:
    pl = pytest.importorskip("polars", reason="too large for the tests' extra")
    given = pl.Series([1.0, 2.0, 3.0])
    assert np.shares_memory(mo.asarray(given, copy=False).numpy(), given.to_numpy(allow_copy=False))
    assert mo.asarray(pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})).tolist() == [[1.0, 3.0], [2.0, 4.0]]
    for odd, error, says in ((pl.Series([1, None]), ValueFault, "1 nulls of 2"),
                             (pl.Series(["a"]), DTypeError, "strings")):
        with pytest.raises(error, match=says):
            mo.asarray(odd)


def test_xarray(x: Any) -> None:
    xr = pytest.importorskip("xarray", reason="needs pandas, too large for the tests' extra")
    array = np.arange(6.0).reshape(2, 3)
    assert address_of(mo.asarray(xr.DataArray(array), copy=False)) == array.ctypes.data
    labelled = xr.DataArray(x, dims=("a", "b"), coords={"a": np.arange(6)})
    assert mo.asarray(labelled) is x
    for found in (labelled + 1, labelled.mean("a"), labelled.sum(), labelled.max("b"), labelled.sel(a=2), labelled.T,
                  labelled.std("a"), labelled.var(ddof=1), labelled.where(labelled > 1, 0),
                  labelled.shift(a=1, fill_value=0), labelled.pad(a=(1, 2), constant_values=3),
                  xr.apply_ufunc(mo.gelu, labelled), xr.dot(labelled, labelled), xr.concat([labelled, labelled], "a")):
        assert isinstance(found.data, mo.Tensor)


def test_xarray_where_it_asks_for_numpys_dtypes() -> None:
    xr = pytest.importorskip("xarray", reason="needs pandas, too large for the tests' extra")
    array = np.array([[1.0, 5.0, 2.0, np.nan], [3.0, 3.0, 7.0, 8.0]])
    ours, theirs = (xr.DataArray(data, dims=("a", "b"), coords={"b": [10.0, 20.0, 30.0, 40.0]}, name="v")
                    for data in (mo.asarray(array), array))
    for method in (lambda x: x.to_dataset().mean()["v"], lambda x: x.to_dataset().median("a")["v"],
                   lambda x: x.idxmax("b", fill_value=0.0), lambda x: x.integrate("b"),
                   lambda x: x.quantile([0.25, 0.5], "b")):
        found = method(ours)
        assert isinstance(found.data, mo.Tensor)
        np.testing.assert_allclose(found.values, method(theirs).values)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.4.0", reason="NumPy asks objects for a dtype since 2.4")
def test_numpy_takes_dtypes() -> None:
    from morpho.base.dtypes import ALL
    for dtype in ALL:
        if dtype is mo.bfloat16:
            with pytest.raises(TypeError, match="bfloat16"):  # its bits are uint16 inside, which is another dtype
                np.dtype(dtype)
        else:
            assert np.dtype(dtype) == dtype.numpy == np.zeros(1, dtype).dtype


def test_quantiles_take_q_by_name() -> None:
    x = mo.asarray([1.0, 2.0, 3.0])
    for share in (mo.quantile, mo.nanquantile):
        assert share(x, q=0.5).item() == 2.0
    for hundredths in (mo.percentile, mo.nanpercentile):
        assert hundredths(x, q=50).item() == 2.0


def test_pad_by_numpys_name() -> None:
    assert mo.pad(mo.asarray([1, 2]), (1, 1), constant_values=3).tolist() == [3, 1, 2, 3]
    for wrong in ({"constant_values": (3, 4)}, {"constant_values": 3, "value": 4}):
        with pytest.raises(ArgumentError, match="constant_values"):
            mo.pad(mo.asarray([1, 2]), (1, 1), **wrong)


# -- arrays of NumPy's kind --------------------------------------------------------------------------------------------
def test_subclasses_of_arrays(tmp_path: Path) -> None:
    class Labelled(np.ndarray):
        pass

    base = np.arange(6.0).reshape(2, 3)
    assert address_of(mo.asarray(base.view(Labelled), copy=False)) == base.ctypes.data
    records = np.rec.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")])
    assert mo.asarray(records["b"]).tolist() == [2.0, 4.0]
    mapped = np.memmap(tmp_path / "m", dtype="f4", mode="w+", shape=(3,))
    mapped[:] = 2
    assert mo.asarray(mapped).tolist() == [2.0] * 3
    assert mo.asarray(np.ma.masked_array([1.0, 2.0])).tolist() == [1.0, 2.0]
    with pytest.raises(ValueFault, match="1 elements of the masked array are masked"):
        mo.asarray(np.ma.masked_array([1.0, 2.0], mask=[0, 1]))


# -- science -----------------------------------------------------------------------------------------------------------
def test_scikit_learn(x: Any) -> None:
    sklearn = pytest.importorskip("sklearn", reason="too large for the tests' extra")
    pytest.importorskip("scipy")
    program = """
import os; os.environ["SCIPY_ARRAY_API"] = "1"
import numpy as np, sklearn, morpho as mo
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.metrics import f1_score, mean_squared_error
from sklearn.preprocessing import MinMaxScaler, StandardScaler
a = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
x = mo.asarray(a)
for make in (StandardScaler, MinMaxScaler, lambda: PCA(n_components=2, svd_solver="full")):
    with sklearn.config_context(array_api_dispatch=True):
        found = make().fit_transform(x)
    assert isinstance(found, mo.Tensor), make
    assert np.allclose(np.abs(found.numpy()), np.abs(make().fit_transform(a)), atol=1e-3), make
with sklearn.config_context(array_api_dispatch=True):
    model = Ridge(solver="svd").fit(x, x[:, 0])
    assert isinstance(model.predict(x), mo.Tensor)
    assert mean_squared_error(x[:, 0], model.predict(x)) < 0.1
    truth, found = mo.asarray([0, 1, 1, 2, 0, 1]), mo.asarray([0, 1, 2, 2, 0, 0])
    assert abs(f1_score(truth, found, average="macro") - f1_score(truth.numpy(), found.numpy(), average="macro")) < 1e-6
"""
    assert sklearn
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_bincount_as_libraries_call_it() -> None:
    """By NumPy's names: scikit-learn's scores count classes so."""
    for minlength in (0, 2, 7):
        found = mo.bincount(mo.asarray([0, 3, 3]), weights=None, minlength=minlength)
        assert found.tolist() == np.bincount([0, 3, 3], minlength=minlength).tolist()
    assert mo.bincount(mo.asarray([], dtype="int64"), minlength=3).tolist() == [0, 0, 0]
    for wrong in ({"minlength": -1}, {"minlength": 2, "length": 3}):
        with pytest.raises(ValueError, match="length"):
            mo.bincount([0, 1], **wrong)


def test_scipy() -> None:
    pytest.importorskip("scipy", reason="too large for the tests' extra")
    program = """
import os; os.environ["SCIPY_ARRAY_API"] = "1"
import numpy as np, morpho as mo
import scipy.cluster.vq, scipy.fft, scipy.integrate, scipy.ndimage, scipy.signal, scipy.special, scipy.stats
a = np.abs(np.random.default_rng(0).standard_normal((8, 6))) + 0.1
x = mo.asarray(a)
for function in (scipy.special.erf, lambda x: scipy.special.logsumexp(x, axis=1), scipy.fft.fft, scipy.fft.rfft,
                 scipy.stats.zscore, scipy.stats.skew, scipy.stats.kurtosis, scipy.stats.gmean, scipy.stats.entropy,
                 scipy.stats.rankdata, scipy.cluster.vq.whiten, scipy.integrate.trapezoid, scipy.signal.detrend,
                 lambda x: scipy.signal.convolve(x[:, 0], x[:, 1]), lambda x: scipy.ndimage.gaussian_filter(x, 1.0),
                 lambda x: scipy.stats.ttest_ind(x[:, 0], x[:, 1]).statistic):
    found = function(x)
    assert isinstance(found, mo.Tensor), function
    assert np.allclose(found.numpy(), function(a), rtol=1e-4, atol=1e-5), function
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- data --------------------------------------------------------------------------------------------------------------
class OtherRows:
    """A dataset of another library's kind: `batch` means something else there, rows are fetched several at a time."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"x": np.full(2, number, np.float32), "y": number}

    def __getitems__(self, numbers: list[int]) -> list[dict[str, Any]]:
        self.asked.append(numbers)
        return [self[number] for number in numbers]


def test_rows_are_fetched_several_at_a_time() -> None:
    rows = OtherRows()
    batches = list(mo.data.DataLoader(rows, batch_size=2))
    assert [batch["y"].tolist() for batch in batches] == [[0, 1], [2, 3]] and batches[0]["x"].shape == (2, 2)
    assert rows.asked == [[0, 1], [2, 3]]


def test_hugging_face_datasets() -> None:
    datasets = pytest.importorskip("datasets", reason="needs pyarrow and pandas, too large for the tests' extra")
    rows = datasets.Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1]})
    (batch,) = mo.data.DataLoader(rows.with_format("numpy"), batch_size=2)
    assert batch["x"].shape == (2, 2) and batch["y"].tolist() == [0, 1]
    assert mo.asarray(rows.with_format("arrow")[:]["x"]).tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_batches_of_a_torch_loader(x: Any) -> None:
    torch = pytest.importorskip("torch", reason="too large for the tests' extra")
    rows = torch.utils.data.TensorDataset(torch.ones(4, 3), torch.arange(4))
    loader = torch.utils.data.DataLoader(rows, batch_size=2)
    step = mo.compile(lambda a, b: (a.sum(), b.sum()))
    assert [tuple(part.item() for part in step(a, b)) for a, b in loader] == [(6.0, 1), (6.0, 5)]
    first, _ = next(iter(loader))
    assert address_of(mo.asarray(first, copy=False)) == first.data_ptr()
    mixed = torch.utils.data.DataLoader([(x[i], i) for i in range(4)], batch_size=2,
                                        collate_fn=mo.data.default_collate)
    assert all(isinstance(rows, mo.Tensor) for rows, _ in mixed)


def test_ids_of_a_tokenizer() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.enable_padding(pad_id=2)
    rows = made.encode_batch(["a b", "b"])
    assert mo.asarray([row.ids for row in rows]).tolist() == [[0, 1], [1, 2]]


def test_a_sharded_folder_with_an_index(tmp_path: Path) -> None:
    """As `save_pretrained` and accelerate write it: parts, and an index that says which tensor is where."""
    safetensors = pytest.importorskip("safetensors.numpy")
    parts = {"model-00001-of-00002.safetensors": {"a.weight": np.ones((2, 3), np.float32)},
             "model-00002-of-00002.safetensors": {"b.weight": np.arange(4, dtype=np.float32)}}
    for name, tensors in parts.items():
        safetensors.save_file(tensors, tmp_path / name)
    where = {key: name for name, tensors in parts.items() for key in tensors}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 40},
                                                                       "weight_map": where}))
    found = mo.weights.load(tmp_path)
    assert sorted(found) == ["a.weight", "b.weight"] and found["b.weight"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert sorted(mo.weights.load(tmp_path / "model.safetensors.index.json")) == sorted(found)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises((ValueError, OSError), match="model-00002"):
        mo.weights.load(tmp_path)


class Streamed:
    """A stream as Hugging Face `datasets` has it: items go by, and brackets choose columns."""

    def __iter__(self) -> Any:
        return iter({"x": np.full(2, number)} for number in range(5))

    def __getitem__(self, column: str) -> Any:
        raise KeyError(column)


def test_a_stream_of_another_library() -> None:
    batches = [batch["x"].shape for batch in mo.data.DataLoader(Streamed(), batch_size=2)]
    assert batches == [(2, 2), (2, 2), (1, 2)]


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "1", "I", "F", "CMYK", "YCbCr"])
def test_an_image_of_pillow_has_the_shape_that_numpy_gives_it(mode: str, rng: np.random.Generator) -> None:
    images = pytest.importorskip("PIL.Image")
    image = images.fromarray(rng.integers(0, 256, (2, 4, 3)).astype(np.uint8)).convert(mode)
    found, array = mo.asarray(image), np.asarray(image)
    assert (found.shape, found.numpy().dtype) == (array.shape, array.dtype) and np.array_equal(found.numpy(), array)

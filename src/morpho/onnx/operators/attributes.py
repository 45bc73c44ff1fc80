"""Valid nodes of a file: the attributes of each operator that Morpho takes, and how many inputs.

The names are those of the operators' specifications, all opsets together, without those that Morpho does not compute.
An attribute that is not listed is an error of the file: it may change the result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from morpho.onnx.operators.table import lookup
from morpho.onnx.proto.model import Node

_NAMES = {
    "": """
        Add: axis broadcast; AffineGrid: align_corners; And: axis broadcast; ArgMax: axis keepdims
        select_last_index; ArgMin: axis keepdims select_last_index; Attention: is_causal kv_num_heads
        left_window_size q_num_heads qk_matmul_output_mode right_window_size scale softcap softmax_precision;
        AveragePool: auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides; BatchNormalization:
        epsilon is_test momentum spatial training_mode; Bernoulli: dtype seed; BitCast: to; BitShift: direction;
        BlackmanWindow: output_datatype periodic; Cast: round_mode saturate to; CastLike: round_mode saturate;
        CausalConvWithState: activation; Celu: alpha; CenterCropPad: axes; Clip: max min; Col2Im: dilations pads
        strides; Compress: axis; Concat: axis; ConcatFromSequence: axis new_axis; Constant: sparse_value value
        value_float value_floats value_int value_ints value_string value_strings; ConstantOfShape: value; Conv:
        auto_pad dilations group kernel_shape pads strides; ConvInteger: auto_pad dilations group kernel_shape pads
        strides; ConvTranspose: auto_pad dilations group kernel_shape output_padding output_shape pads strides;
        CumProd: exclusive reverse; CumSum: exclusive reverse; DFT: axis inverse onesided; DeformConv: dilations
        group kernel_shape offset_group pads strides; DepthToSpace: blocksize mode; DequantizeLinear: axis
        block_size output_dtype; Div: axis broadcast; Dropout: is_test ratio seed; Einsum: equation; Elu: alpha;
        Equal: axis broadcast; EyeLike: dtype k; Flatten: axis; GRU: activation_alpha activation_beta activations
        clip direction hidden_size layout linear_before_reset output_sequence; Gather: axis; GatherElements: axis;
        GatherND: batch_dims; Gelu: approximate; Gemm: alpha beta broadcast transA transB; GlobalLpPool: p; Greater:
        axis broadcast; GridSample: align_corners mode padding_mode; GroupNormalization: epsilon num_groups
        stash_type; HammingWindow: output_datatype periodic; HannWindow: output_datatype periodic; HardSigmoid:
        alpha beta; Hardmax: axis; If: else_branch then_branch; ImageDecoder: pixel_format; InstanceNormalization:
        epsilon; IsInf: detect_negative detect_positive; LRN: alpha beta bias size; LSTM: activation_alpha
        activation_beta activations clip direction hidden_size input_forget layout output_sequence;
        LayerNormalization: axis epsilon stash_type; LeakyRelu: alpha; Less: axis broadcast; LinearAttention:
        chunk_size kv_num_heads q_num_heads scale update_rule; LogSoftmax: axis; Loop: body; LpNormalization: axis
        p; LpPool: auto_pad ceil_mode dilations kernel_shape p pads strides; MaxPool: auto_pad ceil_mode dilations
        kernel_shape pads storage_order strides; MaxUnpool: kernel_shape pads strides; MeanVarianceNormalization:
        axes; MelWeightMatrix: output_datatype; Mod: fmod; Mul: axis broadcast; Multinomial: dtype sample_size seed;
        NegativeLogLikelihoodLoss: ignore_index reduction; NonMaxSuppression: center_point_box; OneHot: axis;
        Optional: type; Or: axis broadcast; Pad: mode paddings pads value; Pow: axis broadcast; QLinearConv:
        auto_pad dilations group kernel_shape pads strides; QuantizeLinear: axis block_size output_dtype precision
        saturate; RMSNormalization: axis epsilon stash_type; RNN: activation_alpha activation_beta activations clip
        direction hidden_size layout output_sequence; RandomNormal: dtype mean scale seed shape; RandomNormalLike:
        dtype mean scale seed; RandomUniform: dtype high low seed shape; RandomUniformLike: dtype high low seed;
        Range: stash_type; ReduceL1: axes keepdims noop_with_empty_axes; ReduceL2: axes keepdims
        noop_with_empty_axes; ReduceLogSum: axes keepdims noop_with_empty_axes; ReduceLogSumExp: axes keepdims
        noop_with_empty_axes; ReduceMax: axes keepdims noop_with_empty_axes; ReduceMean: axes keepdims
        noop_with_empty_axes; ReduceMin: axes keepdims noop_with_empty_axes; ReduceProd: axes keepdims
        noop_with_empty_axes; ReduceSum: axes keepdims noop_with_empty_axes; ReduceSumSquare: axes keepdims
        noop_with_empty_axes; RegexFullMatch: pattern; Reshape: allowzero shape; Resize: antialias axes
        coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value keep_aspect_ratio_policy
        mode nearest_mode; ReverseSequence: batch_axis time_axis; RoiAlign: coordinate_transformation_mode mode
        output_height output_width sampling_ratio spatial_scale; RotaryEmbedding: interleaved num_heads
        rotary_embedding_dim; STFT: onesided; Scan: body directions num_scan_inputs scan_input_axes
        scan_input_directions scan_output_axes scan_output_directions; Scatter: axis; ScatterElements: axis
        reduction; ScatterND: reduction; Selu: alpha gamma; SequenceEmpty: dtype; SequenceMap: body; Shape: end
        start; Shrink: bias lambd; SimplifiedLayerNormalization: axis epsilon stash_type; Slice: axes ends starts;
        Softmax: axis; SoftmaxCrossEntropyLoss: ignore_index reduction; SpaceToDepth: blocksize mode; Split: axis
        num_outputs split; SplitToSequence: axis keepdims; Squeeze: axes; StringNormalizer: case_change_action
        is_case_sensitive locale stopwords; StringSplit: delimiter maxsplit; Sub: axis broadcast; SwiGLU: alpha;
        Swish: alpha; TensorScatter: axis mode; TfIdfVectorizer: max_gram_length max_skip_count min_gram_length mode
        ngram_counts ngram_indexes pool_int64s pool_strings weights; ThresholdedRelu: alpha; TopK: axis k largest
        sorted; Transpose: perm; Trilu: upper; Unique: axis sorted; Unsqueeze: axes; Upsample: mode scales; Xor:
        axis broadcast
    """,
    "ai.onnx.ml": """
        Binarizer: threshold; FeatureVectorizer: inputdimensions; Imputer: imputed_value_floats imputed_value_int64s
        replaced_value_float replaced_value_int64; LabelEncoder: classes_strings default_float default_int64
        default_string default_tensor keys_floats keys_int64s keys_strings keys_tensor values_floats values_int64s
        values_strings values_tensor; LinearRegressor: coefficients intercepts post_transform targets; Normalizer:
        norm; Scaler: offset scale; TreeEnsemble: aggregate_function leaf_targetids leaf_weights membership_values
        n_targets nodes_falseleafs nodes_falsenodeids nodes_featureids nodes_hitrates
        nodes_missing_value_tracks_true nodes_modes nodes_splits nodes_trueleafs nodes_truenodeids post_transform
        tree_roots
    """,
    "ai.onnx.preview": """
        FlexAttention: prob_mod scale score_mod softmax_precision
    """,
    "ai.onnx.preview.training": """
        Adagrad: decay_factor epsilon norm_coefficient; Adam: alpha beta epsilon norm_coefficient
        norm_coefficient_post; Momentum: alpha beta mode norm_coefficient
    """,
    "com.microsoft": """
        Attention: mask_filter_value num_heads qkv_hidden_sizes scale unidirectional; DequantizeLinear: axis;
        EmbedLayerNormalization: epsilon mask_index_type; FusedConv: activation activation_params auto_pad dilations
        group kernel_shape pads strides; FusedGemm: activation activation_alpha activation_beta activation_gamma
        alpha beta transA transB; FusedMatMul: alpha transA transB transBatchA transBatchB; GroupQueryAttention:
        causal do_rotary kv_num_heads local_window_size num_heads qk_output rotary_interleaved scale smooth_softmax
        softcap; MatMulNBits: K N accuracy_level bits block_size weight_prepacked; MultiHeadAttention:
        mask_filter_value num_heads scale unidirectional; QGemm: alpha transA transB; QLinearConcat: axis;
        QLinearGlobalAveragePool: channels_last; QLinearLeakyRelu: alpha; QLinearSoftmax: axis opset;
        QuantizeLinear: axis; QuickGelu: alpha; RotaryEmbedding: interleaved is_packed_batching num_heads
        rotary_embedding_dim scale; SimplifiedLayerNormalization: axis epsilon stash_type; SkipLayerNormalization:
        epsilon; SkipSimplifiedLayerNormalization: epsilon; Swish: alpha; TransposeMatMul: alpha transA transB
    """,
}
# Taken, and computed for some values only: what else they are is said.
ONLY: dict[tuple[str, str], dict[str, tuple[Any, ...]]] = {
    ("", "BatchNormalization"): {"spatial": (1,)},
    ("", "Range"): {"stash_type": (1,)},
    ("", "StringNormalizer"): {"locale": ("", "C", "en_US", "en_US.UTF-8")},
    ("com.microsoft", "GroupQueryAttention"): {"causal": (1,), "qk_output": (0,), "smooth_softmax": (-1, 0)},
    ("com.microsoft", "MatMulNBits"): {"weight_prepacked": (0,)},
    ("com.microsoft", "RotaryEmbedding"): {"is_packed_batching": (0,), "scale": (1.0,)},
}
CONSUMED = "consumed_inputs"  # of opsets before 6: a hint which memory may be written


def _read(text: str) -> dict[str, frozenset[str]]:
    rows = (" ".join(row.split()).partition(": ") for row in text.split(";"))
    return {name: frozenset(names.split()) for name, _, names in rows}


ATTRIBUTES: dict[tuple[str, str], frozenset[str]] = {
    (domain, name): names for domain, text in _NAMES.items() for name, names in _read(text).items()}


def faults(node: Node, version: int) -> Iterator[str]:
    """Faults of a node of a known operator, in words.

    >>> node = Node("Relu", "", "", ("x", "x"), ("y",), {"slope": 1.0}, {})
    >>> list(faults(node, 20))
    ["Relu has no attribute 'slope'", 'Relu takes 1 input, and the node has 2']
    """
    key, label = (node.domain, node.op), f"{node.label}{f' (node {node.name!r})' if node.name else ''}"
    known = ATTRIBUTES.get(key, frozenset())
    for name in [*node.attributes, *node.references]:
        if name not in known and not (name == CONSUMED and version < 6):
            yield f"{label} has no attribute {name!r}"
    for name, values in ONLY.get(key, {}).items():
        if node.attributes.get(name, values[0]) not in values:
            yield f"{label}: {name} is {node.attributes[name]!r}, and only {values[0]!r} is computed"
    operator = lookup(*key, version)
    least, most = inputs_of(operator) if operator is not None else (0, None)
    given = len(node.inputs)
    while given and not node.inputs[given - 1]:
        given -= 1
    if len(node.inputs) < least or (most is not None and given > most):
        wanted = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        yield f"{label} takes {wanted} input{'s' * (wanted != '1')}, and the node has {given}"


@cache
def inputs_of(operator: Callable[..., Any]) -> tuple[int, int | None]:
    """How many inputs the function of an operator takes: the least, and the most if there is one."""
    parameters = [*inspect.signature(operator).parameters.values()][1:]
    places = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    open_ended = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return sum(each.default is each.empty for each in places), None if open_ended else len(places)


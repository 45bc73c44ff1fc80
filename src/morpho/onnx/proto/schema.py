"""The messages of ONNX: number of a field -> (name, kind, repeated), from `onnx.proto`.

Kinds are `int` (varint, signed), `float`, `double`, `bytes`, `text`, or the name of a message. A field that is not
listed is an error of the file: what a file says is used, known not to matter, or refused.
"""

from __future__ import annotations

Field = tuple[str, str, bool]

ONE, MANY = False, True
SCHEMA: dict[str, dict[int, Field]] = {
    "Model": {
        1: ("ir_version", "int", ONE), 2: ("producer_name", "text", ONE), 3: ("producer_version", "text", ONE),
        4: ("domain", "text", ONE), 5: ("model_version", "int", ONE), 6: ("doc_string", "skip", ONE),
        7: ("graph", "Graph", ONE), 8: ("opset_import", "OpsetId", MANY), 14: ("metadata_props", "Entry", MANY),
        20: ("training_info", "skip", MANY), 25: ("functions", "Function", MANY), 26: ("configuration", "skip", MANY),
    },
    "OpsetId": {1: ("domain", "text", ONE), 2: ("version", "int", ONE)},
    "Entry": {1: ("key", "text", ONE), 2: ("value", "text", ONE)},
    "Graph": {
        1: ("node", "Node", MANY), 2: ("name", "text", ONE), 5: ("initializer", "Tensor", MANY),
        10: ("doc_string", "skip", ONE), 11: ("input", "ValueInfo", MANY), 12: ("output", "ValueInfo", MANY),
        13: ("value_info", "skip", MANY), 14: ("quantization_annotation", "skip", MANY),
        15: ("sparse_initializer", "SparseTensor", MANY), 16: ("metadata_props", "skip", MANY),
    },
    "Node": {
        1: ("input", "text", MANY), 2: ("output", "text", MANY), 3: ("name", "text", ONE), 4: ("op_type", "text", ONE),
        5: ("attribute", "Attribute", MANY), 6: ("doc_string", "skip", ONE), 7: ("domain", "text", ONE),
        8: ("overload", "text", ONE), 9: ("metadata_props", "skip", MANY), 10: ("device_configurations", "skip", MANY),
    },
    "Attribute": {
        1: ("name", "text", ONE), 2: ("f", "float", ONE), 3: ("i", "int", ONE), 4: ("s", "bytes", ONE),
        5: ("t", "Tensor", ONE), 6: ("g", "Graph", ONE), 7: ("floats", "float", MANY), 8: ("ints", "int", MANY),
        9: ("strings", "bytes", MANY), 10: ("tensors", "Tensor", MANY), 11: ("graphs", "Graph", MANY),
        13: ("doc_string", "skip", ONE), 14: ("tp", "Type", ONE), 15: ("type_protos", "Type", MANY),
        20: ("type", "int", ONE), 21: ("ref_attr_name", "text", ONE), 22: ("sparse_tensor", "SparseTensor", ONE),
        23: ("sparse_tensors", "SparseTensor", MANY),
    },
    "Tensor": {
        1: ("dims", "int", MANY), 2: ("data_type", "int", ONE), 3: ("segment", "refuse", ONE),
        4: ("float_data", "float", MANY), 5: ("int32_data", "int", MANY), 6: ("string_data", "bytes", MANY),
        7: ("int64_data", "int", MANY), 8: ("name", "text", ONE), 9: ("raw_data", "bytes", ONE),
        10: ("double_data", "double", MANY), 11: ("uint64_data", "int", MANY), 12: ("doc_string", "skip", ONE),
        13: ("external_data", "Entry", MANY), 14: ("data_location", "int", ONE), 16: ("metadata_props", "skip", MANY),
    },
    "SparseTensor": {1: ("values", "Tensor", ONE), 2: ("indices", "Tensor", ONE), 3: ("dims", "int", MANY)},
    "ValueInfo": {
        1: ("name", "text", ONE), 2: ("type", "Type", ONE), 3: ("doc_string", "skip", ONE),
        4: ("metadata_props", "skip", MANY),
    },
    "Type": {
        1: ("tensor_type", "TensorType", ONE), 4: ("sequence_type", "Element", ONE), 5: ("map_type", "MapType", ONE),
        6: ("denotation", "skip", ONE), 7: ("opaque_type", "skip", ONE), 8: ("sparse_tensor_type", "TensorType", ONE),
        9: ("optional_type", "Element", ONE),
    },
    "TensorType": {1: ("elem_type", "int", ONE), 2: ("shape", "Shape", ONE)},
    "Element": {1: ("elem_type", "Type", ONE)},
    "MapType": {1: ("key_type", "int", ONE), 2: ("value_type", "Type", ONE)},
    "Shape": {1: ("dim", "Dimension", MANY)},
    "Dimension": {1: ("dim_value", "int", ONE), 2: ("dim_param", "text", ONE), 3: ("denotation", "skip", ONE)},
    "Function": {
        1: ("name", "text", ONE), 4: ("input", "text", MANY), 5: ("output", "text", MANY),
        6: ("attribute", "text", MANY), 7: ("node", "Node", MANY), 8: ("doc_string", "skip", ONE),
        9: ("opset_import", "OpsetId", MANY), 10: ("domain", "text", ONE),
        11: ("attribute_proto", "Attribute", MANY), 12: ("value_info", "skip", MANY), 13: ("overload", "text", ONE),
        14: ("metadata_props", "skip", MANY),
    },
    # A file of one value, as test data has it.
    "Sequence": {
        1: ("name", "text", ONE), 2: ("elem_type", "int", ONE), 3: ("tensor_values", "Tensor", MANY),
        5: ("sequence_values", "Sequence", MANY),
    },
}

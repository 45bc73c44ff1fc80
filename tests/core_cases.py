"""Tests of `pytest -m core`: one case per op, kernel family, model kind, server, cluster and command.

The table names a file under tests/ and its core tests. Of a test with several cases the first one runs, and of those
in `PER_OP` one case per op, in float32 where the op takes it. Files outside the table are not read, so that the minute
is spent in tests. A test that is renamed must be renamed here: `tests/test_seeds.py` checks that all exist.
"""

from __future__ import annotations

CORE: dict[str, tuple[str, ...]] = {
    # what the whole rests on
    "test_floors.py": ("test_imports_point_downwards",),
    "base/test_settings.py": ("test_blocks_nest_and_end", "test_wrong_blocks"),
    "base/test_dtypes.py": (),
    "ir/test_nodes.py": ("test_equal_programs_are_the_same_object", "test_digests_tell_programs_apart",
                         "test_illegal_graphs_are_caught_by_name", "test_rules_run_to_a_fixpoint_and_are_counted"),
    "passes/test_passes.py": ("test_the_whole_line_is_idempotent", "test_equal_programs_are_one_object"),
    "passes/test_fusion.py": ("test_one_kernel_at_every_level", "test_mean_and_variance_are_one_kernel"),
    # ops and kernels
    "ops/test_ops.py": ("test_the_table_has_no_gaps", "test_elementwise", "test_shaped"),
    "ops/test_gradients.py": ("test_elementwise_gradient",),
    "ahead/test_export.py": ("test_a_c_program_has_the_bits_of_python", "test_webassembly_has_them_in_node"),
    "backends/test_seam.py": ("test_a_graph_through_the_protocols",),
    "backends/cpu/test_native.py": ("test_control_flow", "test_memory"),
    "backends/cpu/test_gemm.py": ("test_any_strides_without_a_copy", "test_a_row_alone_has_the_bits_it_has_in_a_batch"),
    "backends/cpu/test_attention.py": ("test_lengths", "test_decoding_step_by_step_is_prefill"),
    "backends/cpu/test_direct_conv.py": ("test_windows_are_read_in_place", "test_the_bits_of_packed_windows"),
    "backends/cpu/test_linalg.py": ("test_solves",),
    "backends/cpu/test_quantised.py": ("test_values_of_blocks", "test_bits_of_the_dequantised_product"),
    "backends/cpu/test_sorting.py": ("test_values", "test_indices"),
    "backends/cuda/test_kernels.py": ("test_products", "test_attention"),
    "sparse/test_matrices.py": ("test_products_with_dense_operands",),
    # arrays, gradients, compiled functions
    "tensor/test_functions.py": ("test_unary", "test_binary", "test_reductions"),
    "tensor/test_autograd.py": ("test_backward_collects_in_grad", "test_hooks_see_and_change_gradients"),
    "tensor/test_recording.py": ("test_bits_are_those_of_compile_and_of_each_operation_by_itself",),
    "tensor/test_vmap.py": ("test_the_bits_of_the_loop",),
    "tensor/test_control.py": ("test_fori_and_while",),
    "tensor/test_einsum.py": ("test_table",),
    "tensor/test_linalg_fft.py": ("test_factorisations", "test_transforms"),
    "tensor/test_random.py": ("test_known_answer", "test_keys"),
    "tensor/test_special.py": ("test_edges",),
    "tensor/test_names.py": ("test_slips_of_the_pen",),
    "spelling/test_numpy_names.py": ("test_a_call_gives_what_numpy_gives",),
    "compile/test_calls.py": ("test_same_bits_as_lazily", "test_wrong_calls"),
    "compile/test_state.py": ("test_updated_in_place",),
    "compile/test_dynamic.py": ("test_same_bits_as_static",),
    "runtime/test_code_cache.py": ("test_memory_before_disk",),
    "runtime/test_tuner.py": ("test_a_gain_below_the_margin_is_left_alone",),
    # networks, training, files of models
    "nn/test_layers.py": ("test_gradient", "test_recurrence", "test_running_statistics"),
    "nn/test_module.py": ("test_names_are_those_of_the_tree", "test_hooks"),
    "optim/test_optim.py": ("test_rules_are_their_formulas", "test_eager_equals_compiled"),
    "amp/test_amp.py": ("test_the_policy",),
    "data/test_data.py": ("test_a_position_is_resumed_exactly",),
    "models/test_generate.py": ("test_pieces_and_steps_equal_the_whole", "test_one_seed_one_text"),
    "models/test_loading.py": ("test_what_was_saved_is_loaded", "test_folders_that_are_no_models"),
    "models/test_families.py": ("test_what_cannot_be_built_is_said",),
    "weights/test_gguf.py": ("test_packed_products",),
    "weights/test_safetensors.py": ("test_round_trip",),
    "weights/test_bpe.py": ("test_damaged_files",),
    "onnx/test_models.py": ("test_bad_input_is_one_sentence",),
    "onnx/test_saving.py": ("test_a_saved_function_is_the_same_everywhere",),
    "linalg/test_functions.py": ("test_the_exponential",),
    "logic/test_language.py": ("test_a_mistake_is_told_with_its_place", "test_the_builder_makes_the_same_program"),
    # servers, clusters, commands
    "serve/engine/test_engine.py": ("test_several_texts_of_one_prompt_share_its_pages",),
    "serve/test_api.py": ("test_a_chat_is_what_generate_gives_for_the_template",),
    "cluster/test_groups.py": ("test_threads", "test_one"),
    "plan/test_strategies.py": ("test_proportional_by_speed_and_by_memory",),
    "plan/test_check.py": (),
    "observe/test_profile.py": ("test_calls_and_lines_of_operations",),
    "observe/test_monitor.py": ("test_names_and_labels_are_checked",),
    "cli/test_plan.py": ("test_the_table", "test_mistakes_are_one_sentence"),
    "cli/test_doctor.py": ("test_the_report_is_rows_of_text",),
    "cli/test_train_and_run.py": ("test_mistakes_are_one_sentence",),
}
PER_OP = ("test_elementwise", "test_shaped", "test_elementwise_gradient")


def core_cases(items: list[tuple[str, str]]) -> set[int]:
    """Return the indices of the core tests among (file under tests/, name with parameters), in order of collection."""
    chosen: dict[tuple[str, str, str], int] = {}
    for index, (file, name) in enumerate(items):
        function, _, parameters = name.partition("[")
        names = CORE.get(file)
        if names is None or (names and function not in names):
            continue
        key = (file, function, parameters.partition("-")[0] if function in PER_OP else "")
        if key not in chosen or (function in PER_OP and parameters.endswith("float32]")
                                 and not items[chosen[key]][1].endswith("float32]")):
            chosen[key] = index
    return set(chosen.values())

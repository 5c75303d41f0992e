"""Faults that users of such planners have reported in public, and the test of each whole kind.

| thread | kind of fault | test |
|---|---|---|
| NVIDIA/Megatron-LM#381, #857 | no uneven layers per stage | tests/solver/exporters/test_pipeline_layout.py::test_written_layouts_count_back |
| NVIDIA/Megatron-LM#1304, #1303 | layers that do not divide are dropped | tests/complaints/test_uneven_layers.py::test_every_layer_is_placed_once_whatever_the_number_of_stages |
| modelscope/ms-swift#5737 | a plan is rejected at launch | tests/complaints/test_uneven_layers.py::test_layers_that_do_not_divide_have_no_even_plan_with_so_many_stages |
| NVIDIA-NeMo/Megatron-Bridge#5077 | memory averaged over unequal stages | tests/complaints/test_uneven_layers.py::test_peak_memory_is_that_of_the_fullest_stage |
| alpa-projects/alpa#684 | memory of stages inaccurate | tests/complaints/test_uneven_layers.py::test_peak_memory_is_that_of_the_fullest_stage |
| NVIDIA/Megatron-LM#6782, #1784 | memory of experts as if dense | tests/complaints/test_memory.py::test_experts_need_more_memory_than_a_dense_model_of_their_active_size |
| NVIDIA/Megatron-LM#482 | theoretical memory far from measured | tests/solver/cost/test_memory.py::test_recorded_bytes_of_a_7b_gpt |
| cli99/llm-analysis#18, #19 | memory of norms and its split | tests/solver/cost/test_memory.py::test_priced_gpt_layer_is_the_published_one |
| huggingface/transformers#27830 | ends without a configuration and without a reason | tests/complaints/test_reasons.py::test_no_plan_always_has_a_reason_and_a_fix |
| deepspeedai/DeepSpeed#4759, #7269 | the same | tests/complaints/test_reasons.py::test_no_plan_always_has_a_reason_and_a_fix |
| alpa-projects/alpa#701 | infinite costs, no explanation | tests/complaints/test_reasons.py::test_no_plan_always_has_a_reason_and_a_fix |
| microsoft/nnscaler#29 | pinned values are not obeyed | tests/complaints/test_reasons.py::test_what_is_pinned_is_obeyed_or_refused |
| hpcaitech/ColossalAI#2729 | tensor or data parallelism alone | tests/complaints/test_reasons.py::test_what_is_pinned_is_obeyed_or_refused |
| alpa-projects/alpa#579 | works on 4 GPUs, fails on 6 | tests/complaints/test_odd_clusters.py::test_any_number_of_gpus_has_a_plan_and_more_are_never_slower |
| microsoft/nnscaler#30 | idle GPUs, unstated objective | tests/complaints/test_odd_clusters.py::test_any_number_of_gpus_has_a_plan_and_more_are_never_slower |
| deepspeedai/DeepSpeed#4997 | not all GPUs given are used, unsaid | tests/complaints/test_odd_clusters.py::test_any_number_of_gpus_has_a_plan_and_more_are_never_slower |
| alpa-projects/alpa#515 | several nodes fail | tests/service/test_end_to_end.py::test_every_example_gets_a_plan_or_a_reason |
| alpa-projects/alpa#953 | a stage over several nodes fails | tests/solver/domain/test_placement.py::test_straddling_stages_share_what_is_left |
| alpa-projects/alpa#752 | needless hops between nodes | tests/solver/test_optimality.py::test_no_layout_beats_an_optimal_plan_of_many_problems_by_measured_layers |
| cli99/llm-analysis#27 | the wrong network tier | tests/solver/cost/test_units.py::test_edges_follow_the_stack_and_the_fabric |
| microsoft/nnscaler#28 | stale costs for a new length or batch | tests/service/test_plans.py::test_floats_survive_digit_for_digit |
| microsoft/nnscaler#7 | partial profiles | tests/solver/cost/test_profiles.py::test_what_profiles_miss_is_excluded_with_the_nearest_measurement |
| microsoft/nnscaler#4 | no breakdown of communication | tests/solver/cost/test_units.py::test_parts_sum_to_forward_and_backward |
| Hsword/Hetu#70 | figures without a source | tests/solver/catalog/test_curves.py::test_every_fitted_curve_names_source_shapes_and_error |
| PKU-DAIR/Hetu-Galvatron#5 | a model by its config | tests/solver/importers/test_hugging_face.py::test_gpt_neox_qwen2_and_gemma_2 |
| hpcaitech/ColossalAI#2853 | time grows without end | tests/solver/test_optimality.py::test_a_search_ends_near_its_time_limit_with_a_bound_that_holds |
| PaddlePaddle/Paddle#60954, #71783 | the same | tests/solver/test_optimality.py::test_a_search_ends_near_its_time_limit_with_a_bound_that_holds |
| sail-sg/zero-bubble-pipeline-parallelism#8, #63, #9 | preconditions and memory of schedules | tests/solver/cost/test_price.py::test_every_schedule_is_priced_or_says_why_not |
| vllm-project/vllm#27239 | a tensor degree per stage | tests/solver/search/test_tiers.py::test_a_wider_tier_is_never_slower_and_its_gain_is_said |
| flagos-ai/FlagScale#803, #854 | parity: splits and degrees per stage | tests/solver/search/test_tiers.py::test_a_launcher_gets_only_what_its_row_allows |
| flagos-ai/FlagScale#464 | no worked examples | tests/service/test_end_to_end.py::test_every_example_gets_a_plan_or_a_reason |
| flagos-ai/FlagScale#316 | an index error for bad input | tests/service/test_end_to_end.py::test_what_is_not_covered_is_refused_before_it_is_queued |
| NVIDIA/TensorRT-LLM#1471 | how was it decided | tests/service/test_end_to_end.py::test_a_plan_is_found_and_explained |
| NVIDIA/NeMo-Framework-Launcher#10 | failed and finished runs teach nothing | tests/service/test_calibrations.py::test_runs_move_the_answers_that_name_their_set |

Not about planning, or not a fault that a test of ours can show: deepspeedai/DeepSpeed#4993 and #5709 (ssh and host files: planning starts no process on
any host); microsoft/nnscaler#13 (a crash of another solver); alpa-projects/alpa#681 (profiles of all combinations of layers: profiles here are by layer);
MooreThreads/SimuMax#5 (how to write a system file: docs/profiles.md describes ours); aliyun/SimAI#34, #285, #292, #298 (workload generators of a simulator).
"""  # noqa: E501

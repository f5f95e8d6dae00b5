"""Every flag of `yaie serve` has a test that sees its effect; a flag without one fails here.

A row names that test. By night each row is tried: with the setting ignored, its test must fail.
"""

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from yaie.cli.main import app

ROOT = Path(__file__).parents[2]
EFFECTS = "tests/cli/test_flag_effects.py"

SEEN_BY = {
    # The server's.
    "host": f"{EFFECTS}::test_it_listens_where_it_is_told",
    "port": f"{EFFECTS}::test_it_listens_where_it_is_told",
    "served_model_name": "tests/server/test_failures.py::test_served_name_replaces_the_models_own",
    "tool_parser": "tests/server/test_tool_calls.py::test_the_parser_is_a_setting",
    "reasoning_parser": "tests/server/test_reasoning.py::test_the_parser_is_a_setting",
    "strict": "tests/server/test_bad_input.py::test_completions_refuse_if_strict",
    "drain_seconds": "tests/cli/test_serve_ends.py"
    "::test_sigterm_under_load_ends_what_the_limit_leaves_over_and_exits_0",
    "engine_process": "tests/cli/test_serve_process.py"
    "::test_the_engine_gets_a_process_where_there_are_cpus_for_two",
    "role": f"{EFFECTS}::test_role_and_handover",
    "handover": f"{EFFECTS}::test_role_and_handover",
    "handover_tokens": f"{EFFECTS}::test_role_and_handover",
    "handover_key_file": f"{EFFECTS}::test_the_secret_of_a_handover",
    "web": "tests/server/test_watch.py::test_without_the_page_there_is_neither",
    "xray": "tests/server/test_origins.py"
    "::test_without_being_told_to_a_server_for_others_has_no_x_ray",
    "step": "tests/server/test_watch.py::test_in_step_mode_the_engine_waits",
    "ssl_certfile": "tests/server/test_tls.py::test_certificate_is_what_clients_see",
    "ssl_keyfile": "tests/server/test_tls.py::test_certificate_is_what_clients_see",
    "step_timeout": "tests/server/test_watchdog.py::test_hung_step_before_the_first_token_is_a_503",
    "queue_timeout": "tests/server/test_timeouts.py"
    "::test_request_without_a_turn_in_time_is_told_to_come_back",
    "request_timeout": "tests/server/test_timeouts.py"
    "::test_request_that_runs_too_long_is_a_504_before_the_first_token",
    "step_seconds": "tests/cli/test_step_seconds.py"
    "::test_a_server_limits_the_steps_of_an_engine_that_may_cut_prompts",
    "max_body_bytes": "tests/server/test_limits.py"
    "::test_announced_length_is_refused_before_a_byte_of_it_comes",
    "max_concurrent_requests": "tests/server/test_limits.py"
    "::test_requests_beyond_the_limit_are_a_503_and_the_rest_goes_on",
    "max_connections": "tests/server/test_connections.py"
    "::test_connections_beyond_the_limit_are_told_and_closed",
    "receive_timeout": "tests/server/test_limits.py::test_body_that_does_not_come_is_a_408",
    "api_key": "tests/server/test_keys.py::test_body_of_a_stranger_is_not_read",
    "api_key_file": "tests/server/test_keys.py::test_keys_come_from_flag_environment_and_file",
    "tenant_keys": "tests/server/test_beside.py::test_keys_may_be_tenants",
    "allowed_origins": "tests/server/test_cors.py::test_named_origin_is_let_in_and_no_other",
    "allowed_host": "tests/server/test_origins.py::test_a_name_may_be_allowed_and_then_no_other_goes",
    "log_level": f"{EFFECTS}::test_it_logs_as_it_is_told",
    "log_file": f"{EFFECTS}::test_it_logs_as_it_is_told",
    "log_json": f"{EFFECTS}::test_it_logs_as_it_is_told",
    # The engine's.
    "model_too": "tests/cli/test_options.py"
    "::test_every_command_takes_the_model_as_an_argument_and_by_name",
    "model": f"{EFFECTS}::test_model",
    "revision": "tests/models/test_hub.py::test_an_unknown_revision",
    "dtype": f"{EFFECTS}::test_dtype",
    "device": f"{EFFECTS}::test_device",
    "backend": f"{EFFECTS}::test_backend",
    "kv_dtype": f"{EFFECTS}::test_kv_dtype",
    "tensor_parallel": "tests/engine/test_ranks.py"
    "::test_what_cannot_work_is_said_before_anything_is_loaded",
    "pipeline_parallel": "tests/engine/test_ranks.py"
    "::test_what_cannot_work_is_said_before_anything_is_loaded",
    "collectives": "tests/worker/test_rank_groups.py::test_the_setting_says_what_sums_and_gathers",
    "rank_timeout": "tests/cli/test_serve_ranks.py::test_a_rank_that_hangs_ends_the_server",
    "block_size": f"{EFFECTS}::test_block_size_and_num_blocks",
    "num_blocks": f"{EFFECTS}::test_block_size_and_num_blocks",
    "kv_memory_share": "tests/worker/test_sizing.py"
    "::test_default_is_a_share_of_memory_and_on_a_cpu_16_sequences_at_most",
    "max_model_len": f"{EFFECTS}::test_max_model_len",
    "max_num_seqs": f"{EFFECTS}::test_max_num_seqs",
    "token_budget": f"{EFFECTS}::test_token_budget",
    "max_waiting": f"{EFFECTS}::test_max_waiting",
    "policy": f"{EFFECTS}::test_policy",
    "batching": f"{EFFECTS}::test_batching",
    "overlap": f"{EFFECTS}::test_overlap",
    "graphs": "tests/backends/test_backend_choice.py::test_graphs_are_refused_without_a_gpu",
    "speculate": f"{EFFECTS}::test_speculate_and_num_drafts",
    "num_drafts": f"{EFFECTS}::test_speculate_and_num_drafts",
    "draft_model": f"{EFFECTS}::test_draft_model",
    "prefix_caching": f"{EFFECTS}::test_prefix_caching",
    "chunked_prefill": f"{EFFECTS}::test_chunked_prefill",
    "preemption": f"{EFFECTS}::test_preemption_and_swap_space",
    "swap_space": f"{EFFECTS}::test_preemption_and_swap_space",
    "watermark": f"{EFFECTS}::test_watermark",
    "seed": f"{EFFECTS}::test_seed",
    "deterministic": f"{EFFECTS}::test_deterministic",
    "threads": f"{EFFECTS}::test_threads",
    "mine": "tests/server/test_part.py::test_the_engine_answers_with_the_learners_part",
    "config_file": "tests/cli/test_options.py"
    "::test_flags_beat_environment_beats_file_beats_default",
}


def parameters() -> dict[str, Any]:
    """Flags and arguments of `yaie serve` as Typer has them, by name."""
    group: Any = typer.main.get_command(app)
    named = {one.name: one for one in group.commands["serve"].params}
    return {name: one for name, one in named.items() if name != "help"}


@cache
def functions_of(file: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_flag_has_a_test_that_sees_its_effect() -> None:
    assert parameters().keys() == SEEN_BY.keys()


@pytest.mark.parametrize("name", SEEN_BY)
def test_that_test_is_there_and_gives_the_flag_a_value(name: str) -> None:
    file, _, test = SEEN_BY[name].partition("::")
    found = functions_of(file)
    assert test in found, f"{file} has no {test}"
    source = ast.unparse(found[test])
    assert "nightly" not in source
    assert "mark.gpu" not in source
    flags = {option.split("/")[0] for option in parameters()[name].opts}
    assert name in source or any(flag in source for flag in flags if flag.startswith("--"))


@pytest.mark.nightly
@pytest.mark.parametrize("name", SEEN_BY)
def test_that_test_fails_where_the_flag_is_ignored(name: str) -> None:
    ignoring = [str(ROOT / "tests/cli/ignoring"), str(ROOT)]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist",
         "--timeout=60", SEEN_BY[name]],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(ignoring), "IGNORED_SETTING": name},
        capture_output=True,
        text=True,
        timeout=250,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "failed" in ran.stdout or "Timeout" in ran.stdout + ran.stderr


@pytest.mark.parametrize("name", ["api_key", "allowed_origins", "allowed_host"])
def test_a_flag_with_several_values_is_repeated(name: str) -> None:
    assert parameters()[name].multiple

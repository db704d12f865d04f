"""Runs in the environment `public` alone: prints cases of public benchmarks as JSON, with the results of their tools.

Both benchmarks ship tasks, simulated services, and the calls that solve each task. The calls are made here, one after
the other, on the services as the package has them.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from importlib import import_module
from importlib.resources import files
from typing import Any

__all__ = ["bfcl", "named", "tau2"]

_CHECKER = "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils"


def tau2(domain: str) -> Iterator[dict[str, Any]]:
    """Yield the tasks of a tau2 domain: the policy, the customer's matter, and the reference calls."""
    module, wire = import_module(f"tau2.domains.{domain}.environment"), import_module("tau2.data_model.message")
    for task in json.loads((files("tau2") / "data" / "tau2" / "domains" / domain / "tasks.json").read_text("utf-8")):
        service = module.get_environment()
        told = task["user_scenario"]["instructions"]
        asked = [told[key] for key in ("reason_for_call", "known_info", "task_instructions") if told.get(key)]
        calls = []
        for action in task["evaluation_criteria"].get("actions") or ():
            if action.get("requestor", "assistant") != "assistant":
                continue  # done by the customer, on a device of theirs
            # Where a reference call fails, its result is the error, as for an agent.
            call = wire.ToolCall(id=action["action_id"], name=action["name"], arguments=action["arguments"])
            calls.append([action["name"], action["arguments"], service.get_response(call).content])
        if calls:
            yield {"group": domain, "system": service.policy, "asked": [["\n".join(asked), calls]]}


def bfcl() -> Iterator[dict[str, Any]]:
    """Yield the tasks of BFCL's category of long results: several requests of a user, each with its reference calls."""
    execute: Callable[..., Any] = import_module(_CHECKER).execute_multi_turn_func_call
    data, name = files("bfcl_eval") / "data", "BFCL_v4_multi_turn_long_context.json"
    tasks = [json.loads(line) for line in (data / name).read_text("utf-8").splitlines()]
    known = [json.loads(line) for line in (data / "possible_answer" / name).read_text("utf-8").splitlines()]
    truths = {one["id"]: one["ground_truth"] for one in known}
    for task in tasks:
        asked = []
        for said, calls in zip(task["question"], truths[task["id"]], strict=True):
            services = (task["initial_config"], task["involved_classes"], "reference", task["id"])
            results, _ = execute(calls, *services, long_context=True)
            made = [[*named(call), result] for call, result in zip(calls, results, strict=True)]
            asked.append(["\n".join(message["content"] for message in said), made])
        yield {"group": task["involved_classes"][0], "system": "", "asked": asked}


def named(call: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a call in Python's form; those without a name are listed as `args`."""
    node = ast.parse(call.strip(), mode="eval").body
    assert isinstance(node, ast.Call)
    arguments = {one.arg or "": _plain(one.value) for one in node.keywords}
    if node.args:
        arguments["args"] = [_plain(one) for one in node.args]
    return ast.unparse(node.func), arguments


def _plain(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):  # the packages print
        found = list(bfcl() if sys.argv[1] == "bfcl" else tau2(sys.argv[1]))
    json.dump(found, sys.stdout)

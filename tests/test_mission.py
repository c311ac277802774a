"""docs/mission.md keeps its word: every row is there, every test that it names exists, what is to be told is told."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.running import ROOT
from tests.trust.routes import all_routes

ROW = re.compile(r"\| (?P<number>\d+)(?: \*\*D\*\*)? \| (?P<what>.+) \| (?P<proof>.+) \|")
TEST = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<name>test_\w+)`")
DOCS = ROOT / "docs"
ROWS = [found for line in (DOCS / "mission.md").read_text("utf-8").splitlines() if (found := ROW.match(line))]
SAGEMAKER = (DOCS / "sagemaker.md").read_text("utf-8")


def test_no_row_is_left_out() -> None:
    assert [int(row["number"]) for row in ROWS] == list(range(1, 109))


def test_every_row_names_tests_that_exist() -> None:
    for row in ROWS:
        named = list(TEST.finditer(row["proof"]))
        assert len(named) == row["proof"].count("::"), row["number"]
        assert named, row["number"]
        for test in named:
            source = (ROOT / "tests" / test["file"]).read_text("utf-8")
            assert re.search(rf"^(async )?def {test['name']}\(", source, re.MULTILINE), test[0]


def test_the_containers_settings_are_documented() -> None:
    """Row 76."""
    described = dict(re.findall(r"^\| `([A-Z_]+)` \| (.+) \|$", SAGEMAKER, re.MULTILINE))
    assert {"HF_MODEL_ID", "SM_NUM_GPUS", "MAX_INPUT_LENGTH", "MAX_TOTAL_TOKENS"} <= described.keys()
    assert described["HF_MODEL_ID"].endswith("; required")


def test_the_deployment_that_is_documented_is_a_whole_one() -> None:
    """Row 79: the call is Python, with the role, the kind and number of instances and 300 s for its start."""
    (code,) = re.findall(r"`(HuggingFaceModel\([^`]+)`", SAGEMAKER)
    deploy = ast.parse(code, mode="eval").body
    assert isinstance(deploy, ast.Call)
    assert isinstance(deploy.func, ast.Attribute)
    assert isinstance(deploy.func.value, ast.Call)
    assert deploy.func.attr == "deploy"
    assert {keyword.arg for keyword in deploy.func.value.keywords} == {"role", "image_uri", "env"}
    given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in deploy.keywords}
    assert given.keys() == {"initial_instance_count", "instance_type", "container_startup_health_check_timeout"}
    assert given["container_startup_health_check_timeout"] == 300


def test_why_a_function_url_is_used_is_explained() -> None:
    """Row 84."""
    (why,) = re.findall(r"^API Gateway and the load balancers[^.]+\.", SAGEMAKER, re.MULTILINE)
    assert "function\nURL in the mode `RESPONSE_STREAM` does not" in why


def test_the_next_steps_are_links() -> None:
    """Row 106."""
    links = dict(re.findall(r"\[([^]]+)\]\((https://[^)]+)\)", SAGEMAKER))
    assert links.keys() == {"vLLM example", "Build a voice agent", "Define a WebSocket endpoint"}


def test_every_route_of_ml_commons_has_its_note(tmp_path: Path) -> None:
    """Row 49."""
    notes = (DOCS / "opensearch.md").read_text("utf-8")
    described = {
        (method, path)
        for methods, paths in re.findall(r"^\| ([A-Z, ]+) \| (`.+`) \|", notes, re.MULTILINE)
        for method in methods.split(", ")
        for path in re.findall(r"`([^`]+)`", paths)
    }
    prefix = "/_plugins/_ml"
    served = {
        (route.method, re.sub(r"\{[^}]+\}", "<id>", route.path.removeprefix(prefix)))
        for route in all_routes(tmp_path)
        if route.path.startswith(prefix) and "{path" not in route.path
    }
    assert described == served

"""What `deploy/` holds: manifests that a cluster takes, hardened as documented, and queries for series that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from prometheus_client import REGISTRY

import gateway.telemetry  # noqa: F401 - registers the series
from gateway.config import Settings
from gateway.config_errors import ConfigError
from tests.running import ROOT

DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "kubernetes"
KUBERNETES = "1.37"
MANIFESTS = sorted(
    path.name for path in BASE.glob("*.yaml") if path.name not in ("kustomization.yaml", "polywire.yaml")
)
AFTER_DRAIN_SECONDS = 2


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_cluster_takes_the_manifest(name: str) -> None:
    kubernetes_validate.validate(load(BASE / name), KUBERNETES, strict=True)


def test_the_validator_refuses_a_field_that_does_not_exist() -> None:
    manifest = load(BASE / "deployment.yaml")
    manifest["spec"]["template"]["spec"]["containers"][0]["readinessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_the_base_names_all_its_files_and_one_set_of_labels() -> None:
    assert sorted(load(BASE / "kustomization.yaml")["resources"]) == MANIFESTS
    deployment = load(BASE / "deployment.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert load(BASE / "service.yaml")["spec"]["selector"] == labels
    for name, field in (("disruption-budget.yaml", "selector"), ("network-policy.yaml", "podSelector")):
        assert load(BASE / name)["spec"][field]["matchLabels"] == labels
    assert load(BASE / "autoscaler.yaml")["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]


def test_the_configuration_of_the_base_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    (container,) = load(BASE / "deployment.yaml")["spec"]["template"]["spec"]["containers"]
    for entry in container["env"]:
        if entry["name"].startswith("POLYWIRE_") and "value" in entry:
            monkeypatch.setenv(entry["name"], entry["value"])
    monkeypatch.setenv("POLYWIRE_STORE", "redis://redis:6379/0")
    settings = Settings.load(BASE / "polywire.yaml")
    assert settings.models[0].id == "default"
    assert settings.limits.drain_seconds == 30


def test_pods_start_only_with_a_store_that_all_of_them_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment, autoscaler = load(BASE / "deployment.yaml")["spec"], load(BASE / "autoscaler.yaml")["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    declared = environment["POLYWIRE__REPLICAS"]
    assert int(declared) == autoscaler["maxReplicas"] >= autoscaler["minReplicas"] > 1
    # An overlay's edit of the autoscaler leaves the number as it is; nothing else may say how many pods there are.
    assert "replicas" not in deployment
    assert "replicas" not in load(BASE / "kustomization.yaml")
    monkeypatch.setenv("POLYWIRE__REPLICAS", declared)
    monkeypatch.delenv("POLYWIRE_STORE", raising=False)
    with pytest.raises(ConfigError, match="POLYWIRE_STORE"):
        Settings.load(BASE / "polywire.yaml")
    monkeypatch.setenv("POLYWIRE_STORE", "redis://redis:6379/0")
    assert Settings.load(BASE / "polywire.yaml").replicas == autoscaler["maxReplicas"]


def test_pods_have_time_to_drain_before_they_are_killed() -> None:
    pod = load(BASE / "deployment.yaml")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    drain = float(environment["POLYWIRE__LIMITS__DRAIN_SECONDS"] or 0)
    before = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > before + drain + AFTER_DRAIN_SECONDS
    # The smaller of the two bounds the drain.
    assert float(container["args"][-1]) >= drain
    compose = load(DEPLOY / "compose.yaml")["services"]["polywire"]
    drain = float(compose["environment"]["POLYWIRE__LIMITS__DRAIN_SECONDS"])
    assert float(compose["stop_grace_period"].rstrip("s")) > drain + AFTER_DRAIN_SECONDS
    assert float(compose["command"][-1]) >= drain


def test_pods_are_hardened_and_secrets_come_by_reference() -> None:
    pod = load(BASE / "deployment.yaml")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {volume["name"] for volume in pod["volumes"] if "emptyDir" in volume}
    assert {mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in writable} == {
        "/tmp",  # noqa: S108 - the container's
        "/var/lib/polywire",
    }
    secret = re.compile(r"STORE$|KEY", re.IGNORECASE)
    for entry in container["env"]:
        assert ("value" in entry) is not bool(secret.search(entry["name"])), entry
    compose = load(DEPLOY / "compose.yaml")["services"]["polywire"]
    assert (compose["read_only"], compose["cap_drop"]) == (True, ["ALL"])
    for name, value in compose["environment"].items():
        assert "KEY" not in name or value.startswith("${"), name


def test_no_pod_reaches_the_metadata_address() -> None:
    blocks = [
        target["ipBlock"]
        for rule in load(BASE / "network-policy.yaml")["spec"]["egress"]
        for target in rule["to"]
        if "ipBlock" in target
    ]
    assert len(blocks) == 1
    assert "169.254.0.0/16" in blocks[0]["except"]


def test_every_query_of_the_dashboard_names_series_and_labels_that_exist() -> None:
    series = known_series()
    dashboard = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [row["definition"] for row in dashboard["templating"]["list"] if row["type"] == "query"]
    assert len(queries) > 10
    for query in queries:
        names = re.findall(r"\b(?:polywire|gen_ai)_\w+(?=[{,])", query)
        assert names, query
        for name in names:
            labels = series[name] | ({"le"} if name.endswith("_bucket") else set())
            for text in re.findall(rf"{name}{{([^}}]*)}}", query):
                assert set(re.findall(r"(\w+)=~?\"", text)) <= labels, query
            for text in re.findall(r"by \(([^)]*)\)", query):
                assert {word.strip() for word in text.split(",")} <= labels, query


def test_the_autoscaler_counts_a_series_that_exists() -> None:
    (metric,) = load(BASE / "autoscaler.yaml")["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] in known_series()


def known_series() -> dict[str, set[str]]:
    """Polywire's series and their labels."""
    found: dict[str, set[str]] = {}
    for collector in list(REGISTRY._collector_to_names):
        labels = set(getattr(collector, "_labelnames", ()))
        for name in REGISTRY._collector_to_names[collector]:
            found[name] = labels
    return found

"""The RayService of the book: its fields are KubeRay's, Serve's and ours, and they fit together."""

import json
import re
import subprocess
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.cluster.install import python_with_ray
from tests.cluster.rayservice_schema import RAY_SERVICE
from tests.judges.clients.install import ROOT
from yaie.cluster.settings import ClusterSettings, refuse_what_does_not_hold
from yaie.core.config import EngineConfig
from yaie.server.settings import ServerSettings

FOLDER = ROOT / "book/examples/kubernetes"


@pytest.fixture
def manifest() -> Any:
    return yaml.safe_load((FOLDER / "rayservice.yaml").read_text("utf-8"))


def serve_config(manifest: Any) -> Any:
    return yaml.safe_load(manifest["spec"]["serveConfigV2"])


def faults(manifest: Any) -> list[str]:
    found = Draft202012Validator(RAY_SERVICE).iter_errors(manifest)
    return [f"{fault.json_path}: {fault.message}" for fault in found]


def test_the_manifest_has_the_fields_of_a_ray_service(manifest: Any) -> None:
    assert faults(manifest) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.serveConfig", ""),
        ("spec.rayClusterConfig.workerGroupSpecs.0.replica", 2),
        ("spec.rayClusterConfig.workerGroupSpecs.0.minReplicas", "2"),
        ("spec.rayClusterConfig.headGroupSpec.rayStartParams.num-cpus", 0),
        ("spec.rayClusterConfig.headGroupSpec.template.spec.containers.0.image", None),
        (
            "spec.rayClusterConfig.headGroupSpec.template.spec.containers.0.resources.limits.cpu",
            "two",
        ),
        ("apiVersion", "ray.io/v1alpha1"),
    ],
)
def test_a_wrong_field_is_found(manifest: Any, path: str, value: Any) -> None:
    *way, last = path.split(".")
    at = manifest
    for step in way:
        at = at[int(step) if step.isdigit() else step]
    at[last] = value
    [fault] = faults(manifest)
    assert last in fault or ".".join(way[-1:]) in fault


def test_its_settings_are_settings_and_fit_the_pods(manifest: Any) -> None:
    [application] = serve_config(manifest)["applications"]
    args = application["args"]
    EngineConfig(**args["engine"])
    server, cluster = ServerSettings(**args["server"]), ClusterSettings(**args["cluster"])
    refuse_what_does_not_hold(server)
    [workers] = manifest["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    assert (cluster.min_replicas, cluster.most_replicas) == (
        workers["minReplicas"],
        workers["maxReplicas"],
    )
    [container] = workers["template"]["spec"]["containers"]
    assert float(container["resources"]["limits"]["cpu"]) >= cluster.cpus_per_replica
    assert workers["template"]["spec"]["terminationGracePeriodSeconds"] > server.drain_seconds


def test_the_image_has_the_ray_that_is_pinned(manifest: Any) -> None:
    pin = re.search(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    assert pin is not None
    assert f"rayproject/ray:{pin[1]}-" in (FOLDER / "Dockerfile").read_text("utf-8")
    assert manifest["spec"]["rayClusterConfig"]["rayVersion"] == pin[1]


def with_ray(program: str, told: Any) -> str:
    """What a program prints, given JSON, in the environment that has Ray."""
    if not python_with_ray().exists():
        pytest.skip("Ray is not installed: python -m tests.cluster.install")
    command = [str(python_with_ray()), "-c", program]
    ran = subprocess.run(
        command, cwd=ROOT, input=json.dumps(told), capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


CHECK_SERVE = """
import json, sys
from ray._common.utils import import_attr
from ray.serve.schema import ServeDeploySchema
config = ServeDeploySchema(**json.load(sys.stdin))
[application] = config.applications
print(import_attr(application.import_path).__name__)
"""
CHECK_PODS = """
import json, sys
import kubernetes_validate
for group in json.load(sys.stdin):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, **group["template"]}
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
print("valid")
"""


def test_serve_reads_its_part_of_the_manifest(manifest: Any) -> None:
    assert with_ray(CHECK_SERVE, serve_config(manifest)).strip() == "application"


def test_the_pods_are_valid_to_kubernetes(manifest: Any) -> None:
    cluster = manifest["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert with_ray(CHECK_PODS, groups).strip() == "valid"

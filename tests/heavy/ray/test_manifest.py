"""The Kubernetes manifest is well formed, uses fields that KubeRay knows, and agrees with the rest of the project."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import Any

import click
import ray
import yaml
from yamllint import linter
from yamllint.config import YamlLintConfig

from shoestring.cli.main import cli

FILE = Path(__file__).parents[3] / "examples" / "kuberay" / "study.yaml"
TEXT = FILE.read_text(encoding="utf-8")
JOB = yaml.safe_load(TEXT)
# The fields of the API ray.io/v1 that the manifest may use.
JOB_FIELDS = {"entrypoint", "submissionMode", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "backoffLimit"}
JOB_FIELDS |= {"rayClusterSpec", "activeDeadlineSeconds", "runtimeEnvYAML", "suspend", "jobId", "metadata"}
CLUSTER_FIELDS = {"rayVersion", "enableInTreeAutoscaling", "autoscalerOptions", "headGroupSpec", "workerGroupSpecs"}
GROUP_FIELDS = {"rayStartParams", "template", "serviceType"}
WORKER_FIELDS = {*GROUP_FIELDS, "groupName", "replicas", "minReplicas", "maxReplicas", "numOfHosts", "scaleStrategy"}
POD_FIELDS = {
    "containers",
    "tolerations",
    "nodeSelector",
    "volumes",
    "terminationGracePeriodSeconds",
    "serviceAccountName",
}
CONTAINER_FIELDS = {"name", "image", "env", "envFrom", "resources", "ports", "volumeMounts", "imagePullPolicy"}


def pods() -> list[dict[str, Any]]:
    cluster = JOB["spec"]["rayClusterSpec"]
    return [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def test_the_yaml_is_well_formatted() -> None:
    rules = YamlLintConfig("extends: default\nrules: {line-length: {max: 130}, document-start: disable}")
    assert [str(problem) for problem in linter.run(io.StringIO(TEXT), rules)] == []


def test_kuberay_knows_every_field() -> None:
    assert (JOB["apiVersion"], JOB["kind"]) == ("ray.io/v1", "RayJob")
    spec = JOB["spec"]
    assert spec.keys() <= JOB_FIELDS
    cluster = spec["rayClusterSpec"]
    assert cluster.keys() <= CLUSTER_FIELDS
    assert cluster["headGroupSpec"].keys() <= GROUP_FIELDS
    for group in cluster["workerGroupSpecs"]:
        assert group.keys() <= WORKER_FIELDS
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for pod in pods():
        assert pod.keys() <= POD_FIELDS
        for container in pod["containers"]:
            assert container.keys() <= CONTAINER_FIELDS
            assert container["resources"]["requests"] == container["resources"]["limits"]


def test_it_agrees_with_the_tested_ray_version_and_the_command_line() -> None:
    assert JOB["spec"]["rayClusterSpec"]["rayVersion"] == ray.__version__
    program, command, *words = shlex.split(JOB["spec"]["entrypoint"])
    assert (program, command) == ("shoestring", "run")
    run = cli.commands["run"]
    found = run.make_context("run", words, parent=click.Context(cli)).params
    assert (found["runner"], found["address"], found["gpus"], found["workers"]) == ("ray", "auto", 1.0, 16)
    assert len({container["image"] for pod in pods() for container in pod["containers"]}) == 1
    workers = JOB["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert sum(group["maxReplicas"] for group in workers) == found["workers"]

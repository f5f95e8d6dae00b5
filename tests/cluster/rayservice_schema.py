"""What KubeRay's API version ray.io/v1 takes for a RayService, as JSON schema.

Written from the fields that its reference lists (RayService, RayCluster, head and worker groups), with
the part of Kubernetes' pods that a manifest here may use. Kubernetes drops a field that it does not
know, so a misspelled one goes unseen there; here it is an error. By night the pods are checked against
Kubernetes' own schema.
"""

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
FLAG: Schema = {"type": "boolean"}
ANY: Schema = {}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}


def thing(_required: str = "", /, **fields: Schema) -> Schema:
    """An object with these fields and no others. _required: names, separated by spaces."""
    properties = {name.rstrip("_"): schema for name, schema in fields.items()}
    return {
        "type": "object",
        "properties": properties,
        "required": _required.split(),
        "additionalProperties": False,
    }


def many(schema: Schema) -> Schema:
    """A list of them."""
    return {"type": "array", "items": schema}


def one_of(*values: str) -> Schema:
    """One of these words."""
    return {"enum": list(values)}


QUANTITIES: Schema = {
    "type": "object",
    "additionalProperties": {
        "type": ["string", "integer"],
        "pattern": r"^\d+(\.\d+)?(m|[KMGT]i?)?$",
    },
}
RESOURCES = thing(requests=QUANTITIES, limits=QUANTITIES)
KEY_OF = thing("key", name=TEXT, key=TEXT, optional=FLAG)
VARIABLE = thing(
    "name",
    name=TEXT,
    value=TEXT,
    valueFrom=thing(secretKeyRef=KEY_OF, configMapKeyRef=KEY_OF, fieldRef=ANY),
)
PORT = thing(
    "containerPort", name=TEXT, containerPort=NUMBER, protocol=one_of("TCP", "UDP", "SCTP")
)
CONTAINER = thing(
    "name", name=TEXT, image=TEXT, imagePullPolicy=one_of("Always", "Never", "IfNotPresent"),
    command=many(TEXT), args=many(TEXT), env=many(VARIABLE), ports=many(PORT), resources=RESOURCES,
    volumeMounts=many(ANY), lifecycle=ANY, livenessProbe=ANY, readinessProbe=ANY, securityContext=ANY,
)  # fmt: skip
POD = thing(
    metadata=thing(labels=TEXTS, annotations=TEXTS),
    spec=thing(
        "containers", containers=many(CONTAINER), volumes=many(ANY), nodeSelector=TEXTS,
        tolerations=many(ANY), affinity=ANY, serviceAccountName=TEXT,
        terminationGracePeriodSeconds=NUMBER,
    ),
)  # fmt: skip
SCALER = thing(
    resources=RESOURCES, image=TEXT, imagePullPolicy=TEXT, env=many(VARIABLE), envFrom=many(ANY),
    volumeMounts=many(ANY), securityContext=ANY, idleTimeoutSeconds=NUMBER,
    upscalingMode=one_of("Default", "Aggressive", "Conservative"),
)  # fmt: skip
HEAD = thing(
    "template rayStartParams", serviceType=TEXT, headService=ANY, enableIngress=FLAG,
    rayStartParams=TEXTS, template=POD,
)  # fmt: skip
WORKERS = thing(
    "groupName minReplicas maxReplicas rayStartParams template", groupName=TEXT, replicas=NUMBER,
    minReplicas=NUMBER, maxReplicas=NUMBER, numOfHosts=NUMBER, rayStartParams=TEXTS, template=POD,
    scaleStrategy=ANY,
)  # fmt: skip
CLUSTER = thing(
    "headGroupSpec", rayVersion=TEXT, enableInTreeAutoscaling=FLAG, autoscalerOptions=SCALER,
    headServiceAnnotations=TEXTS, suspend=FLAG, headGroupSpec=HEAD, workerGroupSpecs=many(WORKERS),
)  # fmt: skip
RAY_SERVICE = thing(
    "apiVersion kind metadata spec",
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayService"},
    metadata=thing("name", name=TEXT, namespace=TEXT, labels=TEXTS, annotations=TEXTS),
    spec=thing(serveConfigV2=TEXT, rayClusterConfig=CLUSTER, serveService=ANY),
)

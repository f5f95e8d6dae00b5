"""The monitoring example: what its dashboard asks for is what the server tells, and its files exist."""

import json
import re

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from book.tools.mdbook import ROOT
from tests.server.conftest import serving
from tests.server.fake_engine import FakeEngine

FOLDER = ROOT / "book/examples/monitoring"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
VARIABLES = [item for item in DASHBOARD["templating"]["list"] if item["type"] == "query"]

SELECTOR = re.compile(r"\b((?:vllm:|process_)\w+)(?:\{([^}]*)\})?")
ADDED_BY_PROMETHEUS = {"instance", "job"}


@pytest.fixture(scope="module")
def exposed():
    """The labels of every sample that a server exposes, by its name."""
    with serving(FakeEngine) as server:
        server.http.post("/v1/completions", json={"prompt": "abc"})
        text = server.http.get("/metrics").text
    labels = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def selected(expression):
    """(metric, the labels that it is filtered by) of every selector in it."""
    return [
        (name, set(re.findall(r"(\w+)\s*=", labels or "")))
        for name, labels in SELECTOR.findall(expression)
    ]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_metrics_and_labels_that_are_exposed(exposed, expression):
    assert selected(expression)
    for name, labels in selected(expression):
        assert name in exposed
        assert labels <= exposed[name] | ADDED_BY_PROMETHEUS
        for group in re.findall(r"by \(([^)]*)\)", expression):
            assert {label.strip() for label in group.split(",")} <= exposed[name]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_takes_rates_of_counters_alone(exposed, expression):
    for name, _ in selected(expression):
        counts = name.endswith(("_total", "_sum", "_count", "_bucket"))
        within = re.search(rf"(?:rate|increase)\({re.escape(name)}\b[^\[]*\[", expression)
        assert bool(within) == counts


def test_every_metric_of_ours_is_on_the_dashboard(exposed):
    shown = {name for expression in EXPRESSIONS for name, _ in selected(expression)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    ours = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exposed if "vllm:" in name}
    # The total of what is shown by reason.
    assert ours - families == {"vllm:num_requests_waiting"}


def test_legends_name_labels_that_are_exposed(exposed):
    for panel in PANELS:
        for target in panel["targets"]:
            known = set().union(*(exposed[name] for name, _ in selected(target["expr"])))
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert named <= known | ADDED_BY_PROMETHEUS


def test_variables_are_defined_and_ask_for_exposed_labels(exposed):
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__rate_interval", "__all"}
    assert used == {item["name"] for item in DASHBOARD["templating"]["list"]}
    for item in VARIABLES:
        name, label = re.fullmatch(r"label_values\((\S+), (\w+)\)", item["query"]["query"]).groups()
        assert label in exposed[name] | ADDED_BY_PROMETHEUS


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_the_compose_file_names_files_that_exist():
    build = COMPOSE["services"]["yaie"]["build"]
    context = (FOLDER / build["context"]).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]).is_file()
    mounted = [
        volume.split(":")
        for service in COMPOSE["services"].values()
        for volume in service.get("volumes", [])
    ]
    files = [source for source, *_ in mounted if source.startswith(".")]
    assert all((FOLDER / source).is_file() for source in files)
    assert {FOLDER / source for source in files} | {FOLDER / "compose.yaml"} == set(
        FOLDER.iterdir()
    )
    assert {source for source, *_ in mounted} - set(files) == COMPOSE["volumes"].keys()


def test_services_are_asked_where_they_listen():
    services = COMPOSE["services"]
    [scraped] = yaml.safe_load((FOLDER / "prometheus.yaml").read_text("utf-8"))["scrape_configs"]
    [source] = yaml.safe_load((FOLDER / "datasource.yaml").read_text("utf-8"))["datasources"]
    [provider] = yaml.safe_load((FOLDER / "dashboards.yaml").read_text("utf-8"))["providers"]
    [[target]] = [config["targets"] for config in scraped["static_configs"]]
    for address in (target, source["url"].removeprefix("http://")):
        name, port = address.split(":")
        assert f"127.0.0.1:{port}:{port}" in services[name]["ports"]
    inside = [volume.split(":")[1] for volume in services["grafana"]["volumes"]]
    assert any(path.startswith(f"{provider['options']['path']}/") for path in inside)
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home in inside


def test_no_port_is_open_to_other_machines():
    for service in COMPOSE["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])

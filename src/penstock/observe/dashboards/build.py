"""Grafana's JSON of a dashboard, by Grafana's own builder."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, Final

from grafana_foundation_sdk.builders import common, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from penstock.observe.dashboards.board import Board, Kind, Panel, Query

_SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
_TAG: Final = "penstock"
_HEIGHTS: Final[dict[Kind, int]] = {"lines": 8, "areas": 8, "heatmap": 8, "table": 8, "number": 4}


def render(board: Board) -> str:
    """As it is checked in and as Grafana reads it: the same for the same board, a line for each panel."""
    whole = json.loads(JSONEncoder(sort_keys=True).encode(build(board)))
    panels = whole.pop("panels")
    rest = json.dumps(whole, indent=1).removesuffix("\n}")
    return f'{rest},\n "panels": [\n  ' + ",\n  ".join(map(json.dumps, panels)) + "\n ]\n}\n"


def build(board: Board) -> model.Dashboard:
    made = (
        builder.Dashboard(board.title)
        .uid(board.name)
        .description(board.help)
        .tags([_TAG])
        .readonly()
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(
            builder.DashboardLink("Penstock")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .as_dropdown(True)
            .keep_time(True)
            .include_vars(True)
        )
        .variables([_source(), *(_choice(name, query) for name, query in board.choices.items())])
    )
    numbers = itertools.count(1)
    for row in board.rows:
        made.with_row(builder.Row(row.title).id(next(numbers)))
        for panel in row.panels:
            made.with_panel(_panel(panel).id(next(numbers)))
    return made.build()


def _source() -> builder.DatasourceVariable:
    return builder.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def _choice(name: str, query: str) -> builder.QueryVariable:
    return (
        builder.QueryVariable(name)
        .label(name.capitalize())
        .datasource(_SOURCE)
        .query(query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(model.VariableOption(selected=True, text="All", value="$__all"))
    )


def _panel(panel: Panel) -> Any:
    made = _MAKERS[panel.kind](panel)
    made.title(panel.title).datasource(_SOURCE).unit(panel.unit).span(panel.width).height(
        _HEIGHTS[panel.kind]
    )
    if panel.help:
        made.description(panel.help)
    if panel.most is not None:
        made.min(0).max(panel.most)
    if panel.steps or panel.kind == "number":  # without steps of its own a number would turn red at 80
        steps = [model.Threshold(value=None, color="green")]
        steps += [model.Threshold(value=value, color=colour) for value, colour in panel.steps]
        made.thresholds(builder.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps))
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        made.with_target(_target(panel, query).ref_id(letter))
    return made


def _target(panel: Panel, query: Query) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).datasource(_SOURCE)
    if query.legend:
        target.legend_format(query.legend)
    if panel.kind == "table":
        return target.instant().format(PromQueryFormat.TABLE)
    if panel.kind == "heatmap":
        return target.range().format(PromQueryFormat.HEATMAP)
    # What is of the whole chosen time has one value.
    return target.instant() if "$__range" in query.expr else target.range()


def _lines(panel: Panel) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
        .show_points(VisibilityMode.NEVER)
        .axis_soft_min(0)
    )
    if panel.steps:
        made.thresholds_style(common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED))
    return made


def _areas(panel: Panel) -> timeseries.Panel:
    return _lines(panel).fill_opacity(40).stacking(common.StackingConfig().mode(StackingMode.NORMAL))


def _number(panel: Panel) -> stat.Panel:
    return (
        stat.Panel()
        .graph_mode(BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value("none")
    )


def _heatmap(panel: Panel) -> heatmap.Panel:
    scheme = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64)
    return heatmap.Panel().color(scheme).calculate(False).y_axis(heatmap.YAxisConfig().unit(panel.unit))


_MAKERS: Final[dict[Kind, Callable[[Panel], Any]]] = {
    "lines": _lines,
    "areas": _areas,
    "number": _number,
    "heatmap": _heatmap,
    "table": lambda panel: table.Panel(),
}

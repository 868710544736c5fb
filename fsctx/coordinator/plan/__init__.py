"""`fsctx plan`: claims, models and templates in, a run folder out."""

from fsctx.coordinator.plan.planner import plan
from fsctx.coordinator.plan.request import LabelCount, PlanReport, PlanRequest, Progress

__all__ = ["LabelCount", "PlanReport", "PlanRequest", "Progress", "plan"]

"""A finished run in the place where a plan wants to be: the same plan is welcome, another one is refused."""

from fsctx.coordinator.plan.draft import Draft
from fsctx.coordinator.plan.request import PlanRequest
from fsctx.errors import InputError, Missing
from fsctx.protocol import names
from fsctx.protocol.manifest import Manifest
from fsctx.store import Store


def check_same_plan(store: Store, manifest: Manifest, request: PlanRequest, wanted: Draft) -> None:
    """Check that a run is what is asked for.

    Raises:
        InputError: it is not; names what differs.
    """
    if manifest.plan == wanted.digest:
        return
    differences = ", ".join(_differences(store, manifest, request, wanted)) or "its options"
    raise InputError(
        f"{store.root} is the run of another plan (planned {manifest.created}; {differences} differ): "
        "choose another folder for --run"
    )


def _differences(store: Store, manifest: Manifest, request: PlanRequest, wanted: Draft) -> list[str]:
    has_app = manifest.app is not None or wanted.app is not None
    checks = {
        "the inputs": [f.sha256 for f in manifest.inputs] == [i.fingerprint.sha256 for i in wanted.inputs],
        "the models": list(dict.fromkeys(t.context for t in manifest.tasks))
        == [m.context.digest for m in wanted.models],
        "the application": manifest.app == (wanted.app.app if wanted.app else None),
        "the templates": has_app or _texts(store, manifest) == {t.template.name: t.text for t in wanted.templates},
        "the method": has_app or {t.method for t in manifest.tasks} == {request.method},
        "--unit-rows": request.unit_rows in (None, manifest.geometry.unit_rows),
        "--sweep and --budget": _sweep(manifest) == (request.sweep, request.budget),
        "--ttl": request.ttl_s in (None, manifest.ttl_s),
    }
    return [what for what, is_same in checks.items() if not is_same]


def _sweep(manifest: Manifest) -> tuple[str | None, int | None]:
    return ("halving", manifest.sweep.budget) if manifest.sweep else (None, None)


def _texts(store: Store, manifest: Manifest) -> dict[str, str]:
    planned = dict.fromkeys(task.template for task in manifest.tasks)
    try:
        return {name: store.read(names.template(name)).decode(errors="replace") for name in planned}
    except Missing:
        return {}

"""From a plan to a launcher's files and from such files to a plan, whichever launcher it is."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from cost_models.specs.errors import did_you_mean
from planner.document import Configuration, PlanDocument, loads
from planner.errors import InexpressibleError, LauncherFileError, RequestError
from planner.export import (
    accelerate,
    automodel,
    axolotl,
    bridge,
    deepspeed,
    maxtext,
    megatron,
    nanotron,
    runtime,
    torchtitan,
    trainer,
)
from planner.export.bundle import JOB_FILE, LAUNCH_FILE, Bundle, Job, job_of, require
from planner.export.launch import launch_script
from planner.launchers import RUNTIME, illegalities, refusals

__all__ = ["EXPORTERS", "LAUNCHER_NAMES", "exported", "imported"]

EXPORTERS: dict[str, Callable[[Configuration], Bundle]] = {
    "megatron": megatron.bundle,
    "bridge": bridge.bundle,
    "torchtitan": torchtitan.bundle,
    "deepspeed": deepspeed.bundle,
    "accelerate": accelerate.bundle,
    "trainer": trainer.bundle,
    "automodel": automodel.bundle,
    "nanotron": nanotron.bundle,
    "axolotl": axolotl.bundle,
    "maxtext": maxtext.bundle,
}
IMPORTERS: dict[str, Callable[[Mapping[str, str], Job], Configuration]] = {
    "megatron": megatron.plan,
    "bridge": bridge.plan,
    "torchtitan": torchtitan.plan,
    "deepspeed": deepspeed.plan,
    "accelerate": accelerate.plan,
    "trainer": trainer.plan,
    "automodel": automodel.plan,
    "nanotron": nanotron.plan,
    "axolotl": axolotl.plan,
    "maxtext": maxtext.plan,
}
LAUNCHER_NAMES = (*EXPORTERS, RUNTIME)


def exported(plan: PlanDocument | Configuration, launcher: str) -> Bundle:
    """A plan in a launcher's own form, ready to be launched.

    Raises InexpressibleError where the launcher cannot run it, and RequestError for a launcher that there is not, for
    a plan that breaks a rule of every plan, and for a plan without predictions that is to go to the own runtime.
    """
    if launcher not in LAUNCHER_NAMES:
        message = f"--to must be one of {', '.join(LAUNCHER_NAMES)}, got {launcher!r}"
        raise RequestError(message + did_you_mean(launcher, LAUNCHER_NAMES))
    if broken := illegalities(plan):
        message = "no launcher can run the plan:" + "".join(f"\n  {each.field}: {each.text}" for each in broken)
        raise RequestError(message)
    if refused := refusals(plan, launcher):
        raise InexpressibleError(launcher, refused)
    configuration = plan.configuration if isinstance(plan, PlanDocument) else plan
    if launcher == RUNTIME:
        if not isinstance(plan, PlanDocument):
            message = "the runtime executes plan documents; this plan comes without predictions"
            raise RequestError(message)
        bundle = runtime.bundle(plan)
    else:
        bundle = EXPORTERS[launcher](configuration)
    return _with_launch(bundle, configuration)


def imported(files: Mapping[str, str]) -> Configuration:
    """The plan of an export's files, without predictions: the job is in job.json, all else in the launcher's own files.

    Raises LauncherFileError, or DocumentError for a plan of the own runtime, that name what is wrong.
    """
    job = job_of(files)
    if job.launcher == RUNTIME:
        require(files, RUNTIME, runtime.FILE)
        return loads(files[runtime.FILE], runtime.FILE).configuration
    if job.launcher not in IMPORTERS:
        message = f"job.launcher must be one of {', '.join(LAUNCHER_NAMES)}, got {job.launcher!r}"
        raise LauncherFileError(message)
    return IMPORTERS[job.launcher](files, job)


def _with_launch(bundle: Bundle, configuration: Configuration) -> Bundle:
    """The bundle with launch.sh and job.json."""
    workload, layout, model = configuration.workload, configuration.parallelism, configuration.model
    title = f"{model.name} on {layout.gpus_used} GPUs with {bundle.versions}."
    job = Job(
        launcher=bundle.launcher,
        versions=bundle.versions,
        gpus_used=layout.gpus_used,
        expert_imbalance=workload.expert_imbalance,
        document_mask_imbalance=workload.document_mask_imbalance,
        model=model,
        cluster=configuration.cluster,
        recipe=configuration.recipe,
    )
    facts = json.dumps(job.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
    script = launch_script(title, bundle.env, bundle.command)
    return replace(bundle, files={**bundle.files, LAUNCH_FILE: script, JOB_FILE: facts})

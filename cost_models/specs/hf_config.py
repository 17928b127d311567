"""Models from the config.json of a Hugging Face checkpoint: a file, a folder, or the local cache. Never the network."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cost_models.specs.errors import SpecError, UnknownNameError, did_you_mean
from cost_models.specs.files import read_text
from cost_models.specs.hf_families import FAMILIES, model_of
from cost_models.specs.hf_keys import Keys
from cost_models.specs.model import ModelSpec

# Where multimodal files keep their text model: transformers; DeepSeek-VL2 and Janus; InternVL.
TEXT_MODELS = ("text_config", "language_config", "llm_config")
MODALITIES = ("vision_config", "audio_config", "vision_tower", "speech_config")
# Types with layers that no cost expression describes.
WITHOUT_SOFTMAX = {
    "jamba": "state-space layers",
    "mamba": "state-space layers",
    "mamba2": "state-space layers",
    "minimax": "linear attention",
    "qwen3_5": "linear attention",
    "qwen3_next": "linear attention",
    "rwkv": "linear attention",
}
# The Hub allows 96 characters for each half of an id; longer ones would not even be names of folders.
_HUB_ID = re.compile(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", re.ASCII)


@dataclass(frozen=True)
class HfModel:
    """A model read from a config.json, and a sentence for each thing that was assumed or left out."""

    model: ModelSpec
    notes: tuple[str, ...]


def load_hf_config(path: str | Path, name: str | None = None) -> HfModel:
    """Return the model of a config.json or of a folder that holds one, called `name` or like its folder.

    Raises SpecError that names the file and the key; UnknownNameError for a model_type that is not known.
    """
    where = os.path.expanduser(path)
    file = Path(where, "config.json") if os.path.isdir(where) else Path(where)
    entries = _read(file)
    nested = next((key for key in TEXT_MODELS if entries.get(key) is not None), None)
    text = entries
    notes: tuple[str, ...] = ()
    if nested is not None:
        inner = entries[nested]
        if not isinstance(inner, dict):
            message = f"{file}: {nested} must be an object, got {type(inner).__name__}"
            raise SpecError(message)
        text = {"model_type": f"{entries.get('model_type')}_text", **inner}
    if nested is not None or any(entries.get(key) for key in MODALITIES):
        notes = ("The model is multimodal: only its text model is planned, without towers for other inputs.",)
    keys = _keys(text, f"{file}: {nested}" if nested is not None else str(file))
    family = FAMILIES[keys.model_type]
    tied = Keys(entries, str(file), keys.model_type, {}).flag("tie_word_embeddings", family.tied)
    called = name or _name_of(file, entries)
    try:
        model = model_of(keys, family, called, tied=tied)
    except SpecError as error:
        raise error if str(error).startswith(str(file)) else SpecError(f"{file}: {error}") from None
    return HfModel(model, (*notes, *keys.notes))


def load_cached_config(hub_id: str) -> HfModel | None:
    """Return the model of an id such as "org/name" in the local Hugging Face cache, None when it is not there.

    The caches are $HF_HUB_CACHE, $HF_HOME/hub and ~/.cache/huggingface/hub; refs/main decides between snapshots, else
    the latest one. Raises SpecError when the file there cannot be read.
    """
    if not _HUB_ID.fullmatch(hub_id):
        return None
    for root in _cache_roots():
        folder = root / f"models--{hub_id.replace('/', '--')}"
        snapshots = [file for file in sorted(folder.glob("snapshots/*/config.json")) if file.is_file()]
        if snapshots:
            main = _main_revision(folder)
            named = [file for file in snapshots if file.parent.name == main]
            return load_hf_config((named or [max(snapshots, key=_age)])[0], name=hub_id)
    return None


def _cache_roots() -> list[Path]:
    named = [os.environ.get("HF_HUB_CACHE", ""), os.environ.get("HUGGINGFACE_HUB_CACHE", "")]
    home = os.environ.get("HF_HOME", "")
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    places = [*named, f"{home}/hub" if home else "", f"{caches}/huggingface/hub"]
    return [Path(os.path.expanduser(place)) for place in places if place]


def _main_revision(folder: Path) -> str:
    """Return the snapshot that refs/main names, an empty text when it names none."""
    try:
        return (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _age(file: Path) -> tuple[float, str]:
    return file.stat().st_mtime, str(file)


def _name_of(file: Path, entries: dict[str, Any]) -> str:
    """Return the name that the file gives, else that of its folder."""
    given = entries.get("_name_or_path")
    stem = file.resolve().parent.name if file.name == "config.json" else file.stem
    return given[:200] if isinstance(given, str) and _HUB_ID.fullmatch(given) else stem[:200] or "model"


def _keys(entries: dict[str, Any], where: str) -> Keys:
    """Return the entries of a known model type. Raises UnknownNameError for others."""
    model_type = entries.get("model_type")
    if not isinstance(model_type, str):
        message = f"{where}: model_type is required and must be text, got {model_type!r:.60}"
        raise SpecError(message)
    if model_type in WITHOUT_SOFTMAX:
        message = f"{where}: model_type '{model_type}' has {WITHOUT_SOFTMAX[model_type]}, which cannot be planned"
        raise UnknownNameError(message)
    if model_type not in FAMILIES:
        hint = did_you_mean(model_type, FAMILIES)
        message = f"{where}: unknown model_type '{model_type:.60}'{hint}; known: {', '.join(sorted(FAMILIES))}"
        raise UnknownNameError(message)
    family = FAMILIES[model_type]
    return Keys(entries, where, model_type, {**family.defaults, "max_position_embeddings": family.context})


def _read(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raises SpecError."""
    text = read_text(file)
    try:
        content = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        message = f"{file} is not valid JSON: {reason}"
        raise SpecError(message) from error
    if not isinstance(content, dict):
        message = f"{file} must hold a JSON object, got {type(content).__name__}"
        raise SpecError(message)
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's entries; ValueError when a key is given twice, of which JSON would take the last."""
    entries = dict(pairs)
    for key, value in pairs:
        if value != entries[key]:
            message = f"{key:.60} is given twice, {value!r:.60} and {entries[key]!r:.60}"
            raise ValueError(message)
    return entries


def _refuse_constant(text: str) -> NoReturn:
    message = f"{text} is no number"
    raise ValueError(message)

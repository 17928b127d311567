"""The base class of every spec, and the one place where pydantic's errors become ours."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, NoReturn, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from cost_models.specs.errors import SpecError, UnknownNameError, did_you_mean

Value = TypeVar("Value")


class FrozenDict(dict[str, Value]):
    """A dict that refuses changes, so that a frozen spec is frozen all the way down; it pickles and hashes."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        message = "a spec is frozen: build a changed copy with replaced()"
        raise TypeError(message)

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return (FrozenDict, (dict(self),))


def frozen(mapping: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return the mapping as a FrozenDict."""
    return FrozenDict(mapping)


# Strict numbers: no "8" for 8, no True for 1. A whole number is accepted where a real number is wanted.
PositiveInt = Annotated[int, Field(strict=True, ge=1, le=10**15)]
NonNegativeInt = Annotated[int, Field(strict=True, ge=0, le=10**15)]
PositiveFloat = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
NonNegativeFloat = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
FloatByName = Annotated[Mapping[str, PositiveFloat], AfterValidator(frozen)]
FractionByName = Annotated[Mapping[str, Fraction], AfterValidator(frozen)]
Sources = Annotated[Mapping[str, str], AfterValidator(frozen)]


class Spec(BaseModel):
    """A frozen, validated input; every way to build one raises SpecError, never a pydantic error.

    `label` is the first word of the paths in messages ("cluster.gpus must be >= 1, got 0").
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    label: ClassVar[str] = "spec"

    def __init__(self, /, **data: Any) -> None:
        with translated(type(self)):
            super().__init__(**data)

    # As in pydantic's RootModel: nested specs are then validated in place, and their errors keep the full path.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        message = f"{self.label}.{name} cannot be changed: a spec is frozen, build a changed copy with replaced()"
        raise TypeError(message)

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Return the spec of a dict (or of an instance). Raises SpecError."""
        with translated(cls):
            return super().model_validate(obj, **options)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Return the spec of a JSON object. Raises SpecError."""
        with translated(cls):
            return super().model_validate_json(json_data, **options)

    def replaced(self, **changes: Any) -> Self:
        """Return a validated copy with some fields changed (pydantic's model_copy does not validate).

        >>> from cost_models.specs.workload import WorkloadSpec
        >>> WorkloadSpec(seq_len=8192, global_batch=8).replaced(seq_len=4096).seq_len
        4096
        """
        return type(self)(**{**dict(self), **changes})


@contextmanager
def translated(spec: type[Spec]) -> Iterator[None]:
    """Run a block that validates `spec`; a pydantic error inside becomes SpecError, one line for each fault."""
    try:
        yield
    except ValidationError as error:
        faults = error.errors(include_url=False)
        lines = [_line(spec, fault) for fault in faults if not (fault["type"] == "too_short" and fault["input"])]
        unknown = all(fault["type"] == "extra_forbidden" for fault in faults)
        raise (UnknownNameError if unknown else SpecError)("\n".join(lines)) from None


# pydantic's error type: our sign, and pydantic's name of the bound
_BOUNDS = {
    "greater_than_equal": (">=", "ge"),
    "greater_than": (">", "gt"),
    "less_than_equal": ("<=", "le"),
    "less_than": ("<", "lt"),
}
_KINDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "finite_number": "a finite number",
    "tuple_type": "a list",
    "mapping_type": "a table",
    "dict_type": "a table",
    "model_type": "a table",
    "string_too_short": "text that is not empty",
    "string_too_long": "shorter text",
    "too_short": "a list that is not empty",
}


def _line(spec: type[Spec], fault: ErrorDetails) -> str:
    """Return the sentence for one fault of pydantic."""
    kind, location, value, context = fault["type"], fault["loc"], fault["input"], fault.get("ctx", {})
    path = _path(spec, location)
    if kind == "extra_forbidden":
        owner = _owner(spec, location[:-1])
        hint = did_you_mean(str(location[-1]), owner.model_fields) if owner else ""
        return f"unknown field '{location[-1]}' in {_path(spec, location[:-1])}{hint}"
    if kind == "missing":
        return f"{path} is required"
    if kind == "value_error":  # raised by a validator of ours: "kv_heads must divide heads (64), got 6"
        about_a_field = isinstance(value, Mapping | Spec) and _owner(spec, location) is not None
        return f"{path}{'.' if about_a_field else ' '}{context['error']}"
    if kind in _BOUNDS:
        sign, key = _BOUNDS[kind]
        return f"{path} must be {sign} {_plain(context[key])}, got {_shown(value)}"
    if kind == "literal_error":
        return f"{path} must be one of {context['expected']}, got {_shown(value)}"
    wanted = _KINDS.get(kind)
    return f"{path} must be {wanted}, got {_shown(value)}" if wanted else f"{path}: {fault['msg']}, got {_shown(value)}"


def _plain(bound: float) -> str:
    """Return 0 for 0.0, and whole numbers in full."""
    return str(int(bound)) if bound == int(bound) else str(bound)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _path(spec: type[Spec], location: tuple[int | str, ...]) -> str:
    """Return "cluster.tiers[0].kind" for ("tiers", 0, "kind")."""
    return spec.label + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)


def _owner(spec: type[Spec], location: tuple[int | str, ...]) -> type[Spec] | None:
    """Return the spec class that sits at `location` inside `spec`, None when it cannot be told."""
    owner: type[Spec] | None = spec
    for step in location:
        if owner is not None and step in owner.model_fields:
            owner = _spec_within(owner.model_fields[str(step)].annotation)
    return owner


def _spec_within(annotation: Any) -> type[Spec] | None:
    """Return the first Spec class inside a type such as tuple[NetworkTier, ...]."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return annotation
    return next((found for part in get_args(annotation) if (found := _spec_within(part))), None)

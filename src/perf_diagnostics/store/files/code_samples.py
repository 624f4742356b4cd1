"""Samples of the user's code as JSON, and back."""

from __future__ import annotations

from perf_diagnostics.errors import RecordError
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, Json
from perf_diagnostics.store.files.fields import Fields


def encode_code(code: CodeSamples) -> dict[str, Json]:
    """The lines once, and the paths by their numbers."""
    places: list[Json] = [_place(place) for place in code.places]
    paths: list[Json] = [
        {
            "phase": path.phase,
            "part": path.part,
            "places": list(path.places),
            "calls": list(path.calls),
            "via": list(path.via),
            "looks": path.looks,
            "rare": path.rare,
            "late": path.late,
            **({"course": list(path.course)} if path.course else {}),
        }
        for path in code.paths
    ]
    return {
        "interval_s": code.interval_s,
        "rare_interval_s": code.rare_interval_s,
        "cpu_s": code.cpu_s,
        "places": places,
        "paths": paths,
        **({"roles": list(code.roles)} if code.roles else {}),
        **({"stretch_s": code.stretch_s} if code.stretch_s else {}),
    }


def _place(place: CodePlace) -> dict[str, Json]:
    told: dict[str, Json] = {"file": place.file, "line": place.line, "function": place.function, "text": place.text}
    return {**told, "kinds": dict(place.kinds)} if place.kinds else told


def decode_code(fields: Fields) -> CodeSamples:
    """The samples in a JSON object.

    Raises:
        RecordError: a key is missing or holds the wrong type, or a path names a line that is not there.
    """
    places = tuple(
        CodePlace(
            file=one.text("file"),
            line=one.whole("line"),
            function=one.text("function"),
            text=one.text("text"),
            kinds=_kinds(one),
        )
        for one in fields.parts("places")
    )
    paths = tuple(
        CodePath(
            phase=one.text("phase"),
            part=one.text("part"),
            places=_numbers(one, len(places)),
            calls=_texts(one, "calls"),
            via=_texts(one, "via"),
            looks=one.whole("looks"),
            rare=one.whole("rare"),
            late=one.flag("late"),
            course=_course(one),
        )
        for one in fields.parts("paths")
    )
    return CodeSamples(
        places=places,
        paths=paths,
        interval_s=fields.number("interval_s"),
        rare_interval_s=fields.number("rare_interval_s"),
        cpu_s=fields.number("cpu_s"),
        roles=_roles(fields, len(places)),
        stretch_s=fields.number("stretch_s") if "stretch_s" in fields.values else 0.0,
    )


def _course(fields: Fields) -> tuple[int, ...]:
    """None in a record of before 2026-11-24."""
    counts = fields.values.get("course", [])
    if not isinstance(counts, list) or not all(type(count) is int and count >= 0 for count in counts):
        raise RecordError(f"{fields.where}: the key 'course' should hold a list of counts, not {counts!r:.80}.")
    return tuple(int(str(count)) for count in counts)


def _roles(fields: Fields, known: int) -> tuple[str, ...]:
    """None in a record of before 2026-11-23."""
    roles = _texts(fields, "roles") if "roles" in fields.values else ()
    if roles and len(roles) != known:
        raise RecordError(f"{fields.where}: the key 'roles' holds {len(roles)} of {known} lines.")
    return roles


def _kinds(fields: Fields) -> tuple[tuple[str, str], ...]:
    """Older records have none."""
    told = fields.values.get("kinds")
    if told is None:
        return ()
    if not isinstance(told, dict) or not all(isinstance(kind, str) for kind in told.values()):
        raise RecordError(f"{fields.where}: the key 'kinds' should hold texts by name, not {told!r:.80}.")
    return tuple((name, str(kind)) for name, kind in told.items())


def _numbers(fields: Fields, known: int) -> tuple[int, ...]:
    values = fields.need("places")
    if not isinstance(values, list):
        raise RecordError(f"{fields.where}: the key 'places' should hold a list, not {values!r:.80}.")
    numbers: list[int] = []
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < known:
            raise RecordError(f"{fields.where}: the key 'places' holds {value!r:.80}; there are {known} lines.")
        numbers.append(value)
    return tuple(numbers)


def _texts(fields: Fields, key: str) -> tuple[str, ...]:
    values = fields.need(key)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise RecordError(f"{fields.where}: the key {key!r} should hold a list of texts, not {values!r:.80}.")
    return tuple(map(str, values))

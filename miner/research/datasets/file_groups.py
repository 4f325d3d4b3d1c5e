"""Find the files of a release that are requested: names matched with the patterns of a layout, languages compared in canonical form."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from miner.errors import ConfigError, DataError
from miner.languages import canonical
from miner.research.datasets.layout import DatasetForm, DatasetLayout, FileGroup
from miner.research.datasets.release import ReleaseFile, expand_archives, is_archive, list_files

ALL_SPLITS = "all"
SHOWN = 20  # codes or names that an error lists

Key = tuple[str, str, str, str, str, str]  # split, lang, l1, l2, track, part


def find_groups(
    layout: DatasetLayout, path: str, languages: Sequence[str] = (), split: str | None = None
) -> tuple[DatasetForm, list[FileGroup]]:
    """Return the files at PATH that the layout names, grouped by what is read together, and the form they are in.

    `languages` are empty for all; `split` is None for the only one there is, ALL_SPLITS for each.

    Raises DataError where there are none, where one is missing beside another, and where the requested language or split is not
    among them.
    """
    files = list_files(path)
    match = _match_form(layout, files)
    if match is None or any(_missing_roles(match[0], group) for group in match[1]):
        members = expand_archives(files)
        match = (_match_form(layout, [*files, *members]) if members else None) or match
    if match is not None:
        form, groups = match
        groups = _complete(form, _requested(layout, groups, languages, split))
        return form, [replace(group, requested=tuple(languages)) for group in groups]
    if len(files) == 1 and files[0].path == path and not is_archive(path):
        for form in layout.forms:
            if form.any_name:
                return form, [_named_by_user(form, files[0], tuple(languages), split or "")]
    examples = " or ".join(form.example for form in layout.forms)
    raise DataError(f"{path}: no file like {examples}; download {layout.download}, keep its file names, and name the file or its folder")


def _match_form(layout: DatasetLayout, files: Sequence[ReleaseFile]) -> tuple[DatasetForm, list[FileGroup]] | None:
    """Return the first form that has files, and their groups."""
    matches = ((form, _groups(layout, form, files)) for form in layout.forms)
    return next((match for match in matches if match[1]), None)


def _groups(layout: DatasetLayout, form: DatasetForm, files: Sequence[ReleaseFile]) -> list[FileGroup]:
    roles: dict[Key, dict[str, ReleaseFile]] = {}
    for pattern in form.patterns:
        expression = re.compile(f"(?:^|/){pattern.regex}$")
        for file in files:
            match = expression.search(file.stem)
            if match is None:
                continue
            parts = {**{name: value or "" for name, value in match.groupdict().items()}, **pattern.fixed}
            key, role = _key(layout, parts), layout.aliases.get(parts.get("role", ""), parts.get("role", ""))
            other = roles.setdefault(key, {}).setdefault(role, file)
            if other != file and bool(other.member) == bool(file.member):  # a file that is unpacked precedes that in the archive
                raise DataError(f"{other.uri} and {file.uri}: two copies of one part; name the file or the folder of one of them")
            if pattern.only_first:
                break
    return [_group(form, key, roles[key]) for key in sorted(roles)]


def _key(layout: DatasetLayout, parts: Mapping[str, str]) -> Key:
    split = parts.get("split", "")
    codes = [layout.aliases.get(parts.get(name, ""), parts.get(name, "")) for name in ("lang", "l1", "l2")]
    return layout.splits.get(split, split), codes[0], codes[1], codes[2], parts.get("track", ""), parts.get("part", "")


def _group(form: DatasetForm, key: Key, files: dict[str, ReleaseFile]) -> FileGroup:
    split, lang, first, second, track, part = key
    languages = (first, second) if first else (lang,) if lang else () if form.roles else tuple(sorted(files))
    return FileGroup(files, split, languages, track, part)


def _missing_roles(form: DatasetForm, group: FileGroup) -> list[str]:
    return [role for role in form.roles or group.languages if role not in group.files]


def _complete(form: DatasetForm, groups: list[FileGroup]) -> list[FileGroup]:
    """The groups; DataError where a file is missing beside another."""
    for group in groups:
        missing = _missing_roles(form, group)
        if missing:
            present = " and ".join(file.uri for file in group.files.values())
            raise DataError(f"{present}: the file for {missing[0]!r} is missing beside it; expected files like {form.example}")
    return groups


def _named_by_user(form: DatasetForm, file: ReleaseFile, requested: tuple[str, ...], split: str) -> FileGroup:
    """A file whose name says nothing: the user says its language."""
    fixed = form.patterns[0].fixed
    languages = (fixed["lang"],) if "lang" in fixed else requested
    return FileGroup(dict.fromkeys(form.roles, file), split, languages, requested=requested)


def _requested(layout: DatasetLayout, groups: list[FileGroup], languages: Sequence[str], split: str | None) -> list[FileGroup]:
    groups = _of_split(layout, groups, split)
    if languages and layout.kind.name == "triplets" and not groups[0].languages:
        raise DataError(f"{groups[0].title}: {layout.name} does not say the language of its rows; leave the languages out")
    if not languages or not any(group.languages for group in groups):
        return groups
    if layout.kind.name == "aligned":
        return [_choose_columns(group, languages) for group in groups]
    available = sorted({code for group in groups for code in group.languages})
    chosen = {code for language in languages for code in resolve_language(language, available, groups[0].title)}
    both = len(languages) > 1
    kept = [group for group in groups if (all if both else any)(code in chosen for code in group.languages)]
    if not kept:
        pairs = ", ".join("-".join(group.languages) for group in groups[:SHOWN])
        raise DataError(f"{groups[0].title}: no file for {' and '.join(languages)}; there are {pairs}")
    return kept


def _of_split(layout: DatasetLayout, groups: list[FileGroup], split: str | None) -> list[FileGroup]:
    splits = sorted({group.split for group in groups})
    if split == ALL_SPLITS or (split is None and len(splits) == 1):
        return groups
    listed = ", ".join(name or "none" for name in splits)
    if split is None:
        raise DataError(f"{groups[0].title}: {layout.name} has the splits {listed} here; choose one as split, or all")
    chosen = layout.splits.get(split, split)
    kept = [group for group in groups if group.split == chosen]
    if not kept:
        raise DataError(f"{groups[0].title}: no split {split!r} of {layout.name} here; the splits are {listed}")
    return kept


def _choose_columns(group: FileGroup, requested: Sequence[str]) -> FileGroup:
    """The files of the requested languages alone, under the codes that the user gave."""
    codes = choose_codes(requested, group.languages, group.title)
    files = {language: group.files[code] for language, code in codes.items()}
    return replace(group, files=files, languages=tuple(files))


def choose_codes(requested: Sequence[str], available: Sequence[str], where: str) -> dict[str, str]:
    """Requested language -> the one code of the release that it means, in the order requested."""
    return {language: min(resolve_language(language, available, where), key=lambda code: (len(code), code)) for language in requested}


def resolve_language(requested: str, available: Sequence[str], where: str) -> list[str]:
    """Return the codes of a release that mean the requested language; DataError, which names the file `where`, if there are none.

    A code matches if it is the same, or the same in canonical form, or else, for a code without a script, of the same language.
    """
    if requested in available:
        return [requested]
    key = canonical(requested)
    matches = [code for code in available if comparable(code) == key]
    if not matches and len(requested) <= 3:
        matches = [code for code in available if comparable(code).partition("_")[0] == key.partition("_")[0]]
    if not matches:
        raise DataError(f"{where}: no language {requested!r}; there are {', '.join(available[:SHOWN])}")
    return matches


def comparable(code: str) -> str:
    """The canonical form of a code of a release, or the code itself where it is not registered."""
    try:
        return canonical(code.replace("_rom", "-Latn"))  # CC-100's name for romanised text
    except ConfigError:
        return code

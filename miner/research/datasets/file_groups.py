"""Find the files of a release that are requested: names matched with the patterns of a layout, languages compared in canonical form."""

import re
from collections.abc import Sequence
from dataclasses import replace

from miner.errors import ConfigError, DataError
from miner.languages import canonical
from miner.research.datasets.layout import DatasetForm, DatasetLayout, FileGroup
from miner.research.datasets.release import ReleaseFile, expand_archives, is_archive, list_files

ALL_SPLITS = "all"
SHOWN = 20  # codes or names that an error lists

Key = tuple[str, tuple[str, ...], str, str]  # split, languages, track, part


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
    requested = tuple(languages)
    if match is not None:
        form, groups = match
        groups = _requested(layout, groups, languages, split)
        for group in groups:
            if missing := _missing_roles(form, group):
                present = " and ".join(file.uri for file in group.files.values())
                raise DataError(f"{present}: the file for {missing[0]!r} is missing beside it; expected files like {form.example}")
        return form, [replace(group, requested=requested) for group in groups]
    if len(files) == 1 and files[0].path == path and not is_archive(path):
        for form in layout.forms:
            if form.any_name:  # the name of the file says nothing: the user says its language
                fixed = form.patterns[0].fixed
                named = (fixed["lang"],) if "lang" in fixed else requested
                return form, [FileGroup(dict.fromkeys(form.roles, files[0]), split or "", named, requested=requested)]
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
            codes = tuple(layout.aliases.get(parts[name], parts[name]) for name in ("lang", "l1", "l2") if parts.get(name))
            split, role = parts.get("split", ""), parts.get("role", "")
            key = layout.splits.get(split, split), codes, parts.get("track", ""), parts.get("part", "")
            role = layout.aliases.get(role, role)
            other = roles.setdefault(key, {}).setdefault(role, file)
            if other != file and bool(other.member) == bool(file.member):  # a file that is unpacked precedes that in the archive
                raise DataError(f"{other.uri} and {file.uri}: two copies of one part; name the file or the folder of one of them")
            if pattern.only_first:
                break
    groups = []
    for split, codes, track, part in sorted(roles, key=lambda key: (key[0], len(key[1]) == 1, key)):  # pairs before single languages
        files_by_role = roles[split, codes, track, part]
        languages = codes or (() if form.roles else tuple(sorted(files_by_role)))  # files whose roles are languages are in these
        groups.append(FileGroup(files_by_role, split, languages, track, part))
    return groups


def _missing_roles(form: DatasetForm, group: FileGroup) -> list[str]:
    return [role for role in form.roles or group.languages if role not in group.files]


def _requested(layout: DatasetLayout, groups: list[FileGroup], languages: Sequence[str], split: str | None) -> list[FileGroup]:
    groups = _of_split(layout, groups, split)
    if languages and layout.kind.name == "triplets" and not groups[0].languages:
        raise DataError(f"{groups[0].title}: {layout.name} does not say the language of its rows; leave the languages out")
    if not languages or not any(group.languages for group in groups):
        return groups
    if layout.kind.name == "aligned":
        chosen_codes = [(group, choose_codes(languages, group.languages, group.title)) for group in groups]
        # The files of these languages alone, under the codes that the user gave.
        return [
            replace(group, files={language: group.files[code] for language, code in codes.items()}, languages=tuple(codes))
            for group, codes in chosen_codes
        ]
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

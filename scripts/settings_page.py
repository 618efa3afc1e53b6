#!/usr/bin/env python3
"""Write `docs/settings.md` from the settings themselves. `make settings` is this script.

`tests/test_tidy.py` compares the page with what this script would write.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tidelog.config.broker import BROKER_SETTINGS, OWN_PREFIX
from tidelog.config.group import GROUP_SETTINGS, broker_synonym
from tidelog.config.option import DOUBLE_MAX, LONG_MAX, Setting
from tidelog.config.topic import BROKER_SYNONYMS, TOPIC_SETTINGS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

HEAD = """# Settings

Written by `make settings`; do not edit. Names and defaults are Kafka's but for those that begin
with `tidelog.`. Settings marked *dynamic* may change while the broker runs.
"""


def page() -> str:
    """The whole text of docs/settings.md."""
    own = {name: each for name, each in BROKER_SETTINGS.items() if name.startswith(OWN_PREFIX)}
    kafkas = {name: each for name, each in BROKER_SETTINGS.items() if name not in own}
    return "\n".join(
        [
            HEAD,
            "## Topics\n",
            "Set per topic; the broker setting in the last column is the default for all topics.\n",
            *_table(TOPIC_SETTINGS, "broker setting", _synonyms),
            "",
            "## Groups\n",
            "Set per group of the consumer protocol; the broker setting in the last column is\n"
            "what other groups have, and `group.consumer.min.*` and `max.*` bound it.\n",
            *_table(GROUP_SETTINGS, "broker setting", _group_synonym),
            "",
            "## Brokers\n",
            *_table(kafkas, "change", _change),
            "",
            "## Settings of tidelog's own\n",
            *_table(own, "change", _change),
            "",
        ]
    )


def _table(
    settings: Mapping[str, Setting], last: str, last_cell: Callable[[Setting], str]
) -> Iterable[str]:
    yield f"| name | type | default | bounds | meaning | {last} |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, setting in sorted(settings.items()):
        cells = [
            f"`{name}`",
            setting.type.name.lower(),
            _default(setting),
            _bounds(setting),
            setting.documentation,
            last_cell(setting),
        ]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(setting: Setting) -> str:
    if setting.default in (LONG_MAX, DOUBLE_MAX):
        return "no limit"
    rendered = setting.render(setting.default)
    return "" if rendered in {None, ""} else f"`{rendered}`"


def _bounds(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(setting.choices)
    bounds = []
    if setting.minimum is not None:
        bounds.append(f"at least {setting.minimum}")
    if setting.maximum is not None:
        bounds.append(f"at most {setting.maximum}")
    return " and ".join(bounds) + "".join(f", or {value}" for value in setting.also)


def _synonyms(setting: Setting) -> str:
    return ", ".join(f"`{name}`" for name in BROKER_SYNONYMS.get(setting.name, ()))


def _group_synonym(setting: Setting) -> str:
    return f"`{broker_synonym(setting.name)}`"


def _change(setting: Setting) -> str:
    return "dynamic" if setting.is_dynamic else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE} is written\n")

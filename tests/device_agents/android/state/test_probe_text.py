from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wording import has

from fleetrank.device_agents.android.phone import split_sections
from fleetrank.device_agents.android.phone_registration import cells_warning
from fleetrank.device_agents.android.state.power_text import full_charge_mah
from fleetrank.device_agents.android.state.probe_text import (
    facts_of_sections,
    hash_serial,
    to_device_facts,
    why_refused,
)
from fleetrank.foundation.vocabulary import Origin, Tier

SECTIONS = {
    "ro.serialno": "R58M30ABCDE",
    "ro.product.manufacturer": "Google",
    "ro.product.model": "Pixel 6",
    "ro.product.cpu.abilist": "arm64-v8a,armeabi-v7a,armeabi",
    "ro.soc.manufacturer": "Google",
    "ro.soc.model": "GS101",
    "ro.board.platform": "gs101",
    "ro.build.version.release": "14",
    "ro.build.version.sdk": "34",
    "ro.build.version.incremental": "11101792",
    "ro.hardware.egl": "mali",
    "memory": "MemTotal:        7731000 kB\nMemFree:          100000 kB",
    "storage": "Filesystem     1K-blocks     Used Available Use% Mounted on\n"
    "/dev/block/dm-5 113700000 13700000 100000000  13% /data",
    "battery": "  level: 80\n  status: 2",
    "thermal": "IsStatusOverride: false\nThermal Status: 0",
    "gpu": "GLES: ARM, Mali-G78, OpenGL ES 3.2 v1.r38p1",
    "taskset": "/system/bin/taskset",
    "cores": "0 1803000 1803000 300000 schedutil\n1 2802000 2802000 500000 schedutil",
}
FACTS = facts_of_sections(SECTIONS, has_exit_codes=True)


def test_everything_a_phone_tells_is_read() -> None:
    assert FACTS.serial_hash == hash_serial("R58M30ABCDE")
    assert (FACTS.device_model, FACTS.soc, FACTS.sdk) == ("Google Pixel 6", "Google GS101", 34)
    assert FACTS.memory_bytes == 7_731_000 * 1024
    assert FACTS.free_bytes == 100_000_000 * 1024
    assert FACTS.gpu == "ARM, Mali-G78, OpenGL ES 3.2 v1.r38p1"
    assert [cluster.max_mhz for cluster in FACTS.clusters] == [2802.0, 1803.0]
    assert (FACTS.has_battery, FACTS.has_thermal, FACTS.has_taskset) == (True, True, True)
    assert FACTS.virtual is None


def test_a_phone_that_tells_nothing_is_not_known() -> None:
    facts = facts_of_sections({}, has_exit_codes=False)
    assert (facts.serial_hash, facts.sdk, facts.cores, facts.free_bytes) == (None, None, (), None)
    assert facts.device_model == "unknown phone"


def test_a_chip_that_the_maker_names_is_not_replaced_by_its_code_name() -> None:
    old = {key: text for key, text in SECTIONS.items() if not key.startswith("ro.soc")}
    for name, chip in (
        ("ro.board.platform", "exynos5"),
        ("ro.chipname", "exynos9810"),
        ("ro.hardware.chipname", "exynos9820"),
    ):
        old |= {name: chip}
        assert facts_of_sections(old, has_exit_codes=True).soc == chip


@pytest.mark.parametrize(
    ("maker", "model", "expected"),
    [
        ("OnePlus", "ONEPLUS A5000", "ONEPLUS A5000"),
        ("HUAWEI", "HUAWEI P7-L12", "HUAWEI P7-L12"),
        ("Google", "Pixel 8", "Google Pixel 8"),
        ("LG", "LGE 5", "LG LGE 5"),
        ("", "Pixel 8", "Pixel 8"),
    ],
)
def test_the_maker_is_in_the_name_once(maker: str, model: str, expected: str) -> None:
    sections = {"ro.product.manufacturer": maker, "ro.product.model": model}
    assert facts_of_sections(sections, has_exit_codes=True).device_model == expected


def test_rows_hold_the_hash_of_the_serial_number_only() -> None:
    stored = to_device_facts(FACTS, adb_version="36.0.0-1")
    assert (stored.tier, stored.origin, stored.arch) == (Tier.EDGE, Origin.MEASURED, "arm64-v8a")
    assert "R58M30ABCDE" not in repr(stored)
    extra = dict(stored.extra)
    assert extra["adb_version"] == "36.0.0-1"
    assert extra["clusters_mhz"] == "1x2802+1x1803"
    assert list(extra) == sorted(extra)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"sdk": 25, "android_release": "7.1"}, "too old"),
        ({"abis": ("x86",)}, "x86"),
        ({"sdk": None}, "not an Android phone"),
        ({"abis": ()}, "not an Android phone"),
    ],
)
def test_a_phone_below_the_requirements_is_refused_with_the_reason(
    changes: dict[str, object], part: str
) -> None:
    refusal = why_refused(replace(FACTS, **changes))  # type: ignore[arg-type]
    assert part in refusal.reason
    assert refusal.remedy
    assert why_refused(FACTS) is why_refused(replace(FACTS, sdk=26, abis=("armeabi-v7a",))) is None


@given(
    st.dictionaries(
        st.from_regex(r"\A[a-z.]{1,10}\Z"), st.text().map(lambda text: text.strip("\n"))
    )
)
def test_sections_come_apart_as_they_were_printed(sections: dict[str, str]) -> None:
    printed = "".join(f"\n0f0f {name}\n{text}\n" for name, text in sections.items())
    if "\n0f0f " not in "".join(sections.values()):
        assert split_sections(printed, "0f0f") == sections


@pytest.mark.parametrize(
    ("told", "mode"), [("", None), ("real", "real"), ("canned", "canned"), ("dreamt", "canned")]
)
def test_a_phone_that_says_it_is_virtual_is_never_taken_for_a_real_one(told, mode) -> None:
    facts = facts_of_sections({"ro.fleetrank.virtual": told}, has_exit_codes=True)
    assert facts.virtual == mode
    stored = to_device_facts(facts, adb_version="36")
    assert stored.origin is (Origin.VIRTUAL if mode else Origin.MEASURED)


_DUMP = (
    "  present: true\n  status: 3\n  level: {}\n  scale: 100\n  voltage: {}\n  temperature: 300\n"
)


@pytest.mark.parametrize(
    ("level", "voltage", "charge", "full"),
    [
        (80, 3900, "1800000", 2250.0),
        (80, 7800, "1800000", None),
        (10, 3900, "225000", None),
        (80, 3900, "0", None),
    ],
)
def test_a_full_charge_follows_from_charge_and_level(
    level: int, voltage: int, charge: str, full: float | None
) -> None:
    dump = _DUMP.format(level, voltage) + f"  Charge counter: {charge}\n"
    assert full_charge_mah(dump) == full


def test_two_cells_are_doubted_until_the_user_states_their_number() -> None:
    phone = replace(FACTS, virtual=None, sdk=33, full_charge_mah=2250.0)
    assert has(str(cells_warning(phone, {})), "2,250 mAh", "two cells", "cells=2")
    assert cells_warning(phone, {"cells": 1}) is None
    for other in ({"full_charge_mah": 4500.0}, {"full_charge_mah": None}, {"sdk": 28}):
        assert cells_warning(replace(phone, **other), {}) is None

"""What phones of several makers say about their power; the dumps are from published reports."""

import pytest

from fleetrank.device_agents.android.state.power_text import PowerLook, currents_ua, parse_look

SAMSUNG = """Current Battery Service state:
  mBootCompleted: true
  AC powered: false
  USB powered: true
  Wireless powered: false
  Max charging current: 0
  Max charging voltage: 0
  Charge counter: 0
  status: 2
  health: 2
  present: true
  level: 84
  scale: 100
  voltage: 4063
  temperature: 326
  technology: Li-ion
  current now: 321
  charge counter: 0
"""
"""Source: a Galaxy of 2018, gh0st.tistory.com/6."""
TV_BOX = """Current Battery Service state:
  AC powered: false
  USB powered: false
  Wireless powered: false
  Charge counter: 1000
  status: 4
  level: 90
  scale: 100
  voltage: 13
  temperature: 26
"""
"""Source: ppmy.cn/news/1423084."""
PIXEL_6 = """t=349894
CH0(T=349894)[S10M_VDD_TPU], 5578756
CH1(T=349894)[VSYS_PWR_MODEM], 29110940
CH2(T=349894)[VSYS_PWR_RFFE], 3166046
CH3(T=349894)[S2M_VDD_CPUCL2], 30203502
CH4(T=349894)[S3M_VDD_CPUCL1], 23377533
CH5(T=349894)[S4M_VDD_CPUCL0], 46356942
CH6(T=349894)[S5M_VDD_INT], 10771876
CH7(T=349894)[S1M_VDD_MIF], 21091363
"""
"""Source: google/oboe, the energy script of its tools."""


def look(**sections: str) -> PowerLook:
    return parse_look(sections)


def files(**values: object) -> PowerLook:
    return look(supply="".join(f"{name} {value}\n" for name, value in values.items()))


def test_a_samsung_on_its_cable_reports_ma_and_no_charge() -> None:
    seen = look(battery=SAMSUNG)
    assert (seen.current, seen.charge_uah, seen.voltage_mv) == (321, None, 4063.0)
    assert seen.is_discharging is False
    unplugged = SAMSUNG.replace("USB powered: true", "USB powered: false")
    assert look(battery=unplugged.replace("status: 2", "status: 3")).is_discharging is True


@pytest.mark.parametrize(
    ("reported", "cells", "mv"),
    [(3850, 1, 3850), (3850_000, 2, 7700), (7_700_000, 2, 7700), (3850, 0, 3850), (13, 2, None)],
)
def test_the_voltage_is_that_of_all_cells(reported: int, cells: int, mv: float | None) -> None:
    assert parse_look({"supply": f"voltage_now {reported}\n"}, cells).voltage_mv == mv


def test_a_box_without_a_battery_has_no_source() -> None:
    seen = look(battery=TV_BOX)
    assert (seen.voltage_mv, seen.current, seen.rails_uj) == (None, None, None)
    assert not seen.has_source


def test_the_rails_of_a_pixel_count_processors_and_memory() -> None:
    seen = look(rails=PIXEL_6)
    assert seen.rails_uj == 5578756 + 30203502 + 23377533 + 46356942 + 10771876 + 21091363
    assert seen.has_source


@pytest.mark.parametrize(
    ("reported", "current_ua"),
    [
        (-412_000, 412_000.0),  # Pixel: uA, negative while it leaves the battery
        (976, 976_000.0),  # AccA issue 35: mA
        (-441, 441_000.0),  # amply issue 92, a Galaxy A15
        (1_250_000, 1_250_000.0),  # a Mi A1: positive while it leaves, amps issue 1
        (0, 0.0),
        (999_999_999, None),
    ],
)
def test_the_size_of_a_current_decides_its_unit(reported: int, current_ua: float | None) -> None:
    current = files(current_now=reported).current
    assert (None if current is None else currents_ua([current])) == (
        None if current_ua is None else [current_ua]
    )


def test_the_largest_current_of_a_phone_decides_its_unit() -> None:
    assert currents_ua([15_000, 412_000]) == [15_000.0, 412_000.0]
    assert currents_ua([15_000, 412]) == [15_000_000.0, 412_000.0]


@pytest.mark.parametrize(
    ("reported", "charge_uah"),
    [(2_712_000, 2_712_000.0), (3021, 3_021_000.0), (0, None), (-1, None), (50_000, None)],
)
def test_the_size_of_a_charge_decides_its_unit(reported: int, charge_uah: float | None) -> None:
    assert files(charge_counter=reported).charge_uah == charge_uah


def test_a_voltage_is_of_one_cell_or_of_two() -> None:
    assert files(voltage_now=3_815_175).voltage_mv == pytest.approx(3815.175)
    assert files(voltage_now=8_200).voltage_mv == 8200.0
    assert files(voltage_now=4).voltage_mv is None


def test_the_kernels_values_come_before_the_services() -> None:
    seen = look(supply="current_now 500000\nvoltage_now\nstatus Not charging\n", battery=SAMSUNG)
    assert seen.current == 500_000
    assert seen.voltage_mv == 4063.0
    assert seen.is_discharging is False
    assert files(status="Discharging").is_discharging is True


def test_nothing_said_is_nothing_known() -> None:
    assert look() == PowerLook(
        is_discharging=None, charge_uah=None, current=None, voltage_mv=None, rails_uj=None
    )

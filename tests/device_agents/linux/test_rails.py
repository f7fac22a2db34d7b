"""The power sensor at a board's input; trees as NVIDIA's documents and public issues show them."""

from pathlib import Path

import pytest

from fleetrank.device_agents.linux.energy import count_energy
from fleetrank.device_agents.linux.rails import RAIL_LOOK_NS, open_rails, seldom
from fleetrank.foundation.vocabulary import EnergyMethod

ORIN = {
    "name": "ina3221",
    "in1_label": "VDD_IN", "in1_input": "5008", "curr1_input": "920",
    "in2_label": "VDD_CPU_GPU_CV", "in2_input": "5000", "curr2_input": "300",
    "in3_label": "VDD_SOC", "in3_input": "5000", "curr3_input": "200",
}  # fmt: skip
THOR = {"name": "ina238", "in1_label": "VIN", "in1_input": "19000", "power1_input": "30500000"}


def tree(root: Path, folder: str, files: dict[str, str]) -> Path:
    place = root / folder
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / name).write_text(f"{text}\n")
    return root


def power_mw(root: Path) -> float | None:
    """Of a window of one second with a constant reading."""
    moments = iter(range(0, 10_000_000_000, 500_000_000))
    source = open_rails(root, lambda: next(moments))
    if source is None:
        return None
    first, second = source.read(), source.read()
    return (second.mj - first.mj) / 1.0


def test_the_input_alone_is_read(tmp_path: Path) -> None:
    # Two calls of the clock for each reading: the window is one second.
    assert power_mw(tree(tmp_path, "sys/class/hwmon/hwmon1", ORIN)) == pytest.approx(5008 * 0.920)


def test_a_chip_that_computes_power_itself(tmp_path: Path) -> None:
    assert power_mw(tree(tmp_path, "sys/class/hwmon/hwmon4", THOR)) == pytest.approx(30_500)


def test_a_current_with_a_sign_is_a_size(tmp_path: Path) -> None:
    turned = ORIN | {"curr1_input": "-920"}
    assert power_mw(tree(tmp_path, "sys/class/hwmon/hwmon1", turned)) == pytest.approx(5008 * 0.920)


def test_jetpack_4(tmp_path: Path) -> None:
    files = {
        "rail_name_0": "VDD_CPU", "in_power0_input": "100",
        "rail_name_2": "POM_5V_IN", "in_power2_input": "2100",
    }  # fmt: skip
    folder = "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    assert power_mw(tree(tmp_path, folder, files)) == pytest.approx(2100)


@pytest.mark.parametrize("label", ["VDD_CPU_CV", "VIN_SYS_5V0", ""])
def test_other_rails_are_not_the_board(tmp_path: Path, label: str) -> None:
    assert (
        open_rails(tree(tmp_path, "sys/class/hwmon/hwmon0", {**ORIN, "in1_label": label})) is None
    )


def test_an_input_without_current_is_missing(tmp_path: Path) -> None:
    files = {name: text for name, text in ORIN.items() if name != "curr1_input"}
    assert open_rails(tree(tmp_path, "sys/class/hwmon/hwmon0", files)) is None


def test_the_bus_is_read_seldom() -> None:
    now, reads = 0, []

    def read_mw() -> float:
        reads.append(now)
        return float(now)

    read = seldom(read_mw, lambda: now)
    for moment in range(0, 4 * RAIL_LOOK_NS, 10_000_000):
        now = moment
        read()
    assert reads == [0, RAIL_LOOK_NS, 2 * RAIL_LOOK_NS, 3 * RAIL_LOOK_NS]


@pytest.mark.slow
def test_energy_of_a_known_load(tmp_path: Path) -> None:
    """4.6 W beside 0.1 W that changes with each reading, for at least two seconds."""
    root = tree(tmp_path, "sys/class/hwmon/hwmon1", ORIN)
    now = 0

    def step() -> None:
        nonlocal now
        now += 5_000_000
        swing = 20 if now // RAIL_LOOK_NS % 2 else -20
        (root / "sys/class/hwmon/hwmon1/curr1_input").write_text(f"{920 + swing}\n")

    source = open_rails(root, lambda: now)
    assert source.method is EnergyMethod.HWMON_POLLED
    window = count_energy(source, step, lambda: now, least_s=2.0)
    assert window.is_enough
    assert window.power_mw == pytest.approx(5008 * 0.920, rel=0.01)

from fleetrank.device_agents.android.state.dumpsys import (
    Battery,
    Thermal,
    parse_battery,
    parse_is_dozing,
    parse_is_saving,
    parse_is_screen_on,
    parse_thermal,
)

BATTERY = """Current Battery Service state:
  AC powered: false
  USB powered: true
  Wireless powered: false
  Max charging current: 500000
  Charge counter: 2350000
  status: 2
  health: 2
  present: true
  level: 44
  scale: 100
  voltage: 3872
  temperature: 285
  technology: Li-ion
Maker's own:
  level: 7
"""
THERMAL = """IsStatusOverride: false
ThermalEventListeners:
\tcallbacks: 1
Thermal Status: 1
Cached temperatures:
\tTemperature{mValue=91.3, mType=0, mName=CPU, mStatus=3}
HAL Ready: true
Current temperatures from HAL:
\tTemperature{mValue=41.071, mType=0, mName=cpu0, mStatus=0}
\tTemperature{mValue=43.5, mType=0, mName=cpu1, mStatus=0}
\tTemperature{mValue=-99.9, mType=1, mName=gpu, mStatus=0}
\tTemperature{mValue=30.0, mType=2, mName=battery, mStatus=0}
\tTemperature{mValue=33, mType=3, mName=skin, mStatus=0}
Current cooling devices from HAL:
\tCoolingDevice{mValue=0, mType=2, mName=TYPE_CPU}
Temperature static thresholds from HAL:
\tTemperature{mValue=99.0, mType=0, mName=cpu0, mStatus=0}
"""


def test_the_battery_is_read_in_per_cent_and_degrees() -> None:
    assert parse_battery(BATTERY) == Battery(percent=44.0, temp_c=28.5, is_charging=True)


def test_a_battery_out_of_another_scale_is_in_per_cent_too() -> None:
    found = parse_battery("  level: 50\n  scale: 200\n  status: 3\n")
    assert found == Battery(percent=25.0, is_charging=False)


def test_readings_set_by_hand_are_told() -> None:
    text = BATTERY.replace("state:", "state:\n  (UPDATES STOPPED -- use 'reset' to restart)")
    found = parse_battery(text)
    assert found.is_overridden


def test_no_battery_and_no_access_are_not_known() -> None:
    assert parse_battery("Can't find service: battery") is None
    assert parse_battery(BATTERY.replace("present: true", "present: false")) is None


def test_temperatures_are_the_present_ones_of_the_hottest_sensor() -> None:
    assert parse_thermal(THERMAL) == Thermal(status=1, cpu_c=43.5, gpu_c=None, battery_c=30.0)


def test_an_overridden_status_is_told() -> None:
    found = parse_thermal("IsStatusOverride: true\nThermal Status: 0\n")
    assert found == Thermal(status=0, is_overridden=True)


def test_old_phones_without_the_service_are_not_known() -> None:
    assert parse_thermal("Can't find service: thermalservice") is None


def test_a_sensor_without_a_value_does_not_hide_the_sensors_after_it() -> None:
    first = "Current temperatures from HAL:\n"
    sensor = "\tTemperature{mValue=NaN, mType=3, mName=disp_therm, mStatus=0}\n"
    assert parse_thermal(THERMAL.replace(first, first + sensor)) == parse_thermal(THERMAL)


def test_a_status_without_a_thermal_hal_is_unknown_unless_a_person_set_it() -> None:
    text = "IsStatusOverride: false\nThermal Status: 0\nCached temperatures:\nHAL Ready: false\n"
    assert parse_thermal(text) is None
    found = parse_thermal(text.replace("Override: false", "Override: true"))
    assert found == Thermal(status=0, is_overridden=True)


def test_the_screen_is_read_from_the_wakefulness() -> None:
    assert parse_is_screen_on("  mWakefulness=Awake\n  mWakefulnessChanging=false") is True
    assert parse_is_screen_on("  mWakefulness=Dozing\n") is False
    assert parse_is_screen_on("  mWakefulnessRaw=Awake\n  mWakefulnessChanging=false") is True
    assert parse_is_screen_on("  mWakefulnessRaw=Asleep\n") is False


def test_battery_saver_is_read_in_the_form_of_old_and_new_versions() -> None:
    assert parse_is_saving("  mLowPowerModeEnabled=true\n") is True
    assert parse_is_saving("Battery saver state machine:\n  Enabled=false\n") is False
    assert parse_is_saving("  mWakefulness=Awake\n") is None
    assert parse_is_dozing("  mDeviceIdleMode=true\n") is True
    assert parse_is_dozing("  mDeviceIdleMode=\n") is None
    assert parse_is_screen_on("") is None

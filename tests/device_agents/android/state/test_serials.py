"""What together names one phone."""

from fleetrank.device_agents.android.state.probe_text import hash_identity, hash_serial, hash_unit

SHARED = hash_serial("EMULATOR28X0X23X0")
BUILD = "google/sdk_gphone64_x86_64/emu64x:14/UE1A/1:user/release-keys"


def test_phones_with_one_serial_number_are_told_apart_by_model_build_and_emulator() -> None:
    seen = {
        hash_identity(SHARED, "sdk", BUILD, None),
        hash_identity(SHARED, "sdk", BUILD, "Pixel_8"),
        hash_identity(SHARED, "sdk", BUILD, "Pixel_9"),
        hash_identity(SHARED, "tablet", BUILD, None),
        hash_identity(SHARED, "sdk", BUILD.replace("emu64x", "emu64a"), None),
        hash_identity(hash_serial("other"), "sdk", BUILD, None),
    }
    assert len(seen) == 6


def test_an_update_of_the_system_does_not_make_another_phone() -> None:
    newer = BUILD.replace(":14/UE1A/1:", ":15/AP3A/7:")
    assert hash_identity(SHARED, "sdk", newer, None) == hash_identity(SHARED, "sdk", BUILD, None)


def test_equal_tablets_have_one_identity_and_two_units() -> None:
    identity = hash_identity(SHARED, "tablet", BUILD, None)
    units = [hash_unit(identity, android_id) for android_id in ("8f1c", "5f0a41c2d3e4b596")]
    assert units[0] is None  # too short to be random
    assert units[1] not in (None, hash_unit(identity, "5f0a41c2d3e4b597"), identity)
    assert hash_unit(identity, "null") is None
    assert hash_unit(identity, None) is None

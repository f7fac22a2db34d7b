"""Maps the folders of the checkout to the package `fleetrank`; the rest is in pyproject.toml."""

from setuptools import find_packages, setup

FOLDERS = ("analysis", "device_agents", "foundation", "models", "orchestrator")
PUBLIC = "orchestrator/public"
"""What `import fleetrank` itself gives."""

found = find_packages(
    include=[pattern for name in FOLDERS for pattern in (name, f"{name}.*")],
    exclude=[PUBLIC.replace("/", ".")],
)
setup(
    packages=["fleetrank", *(f"fleetrank.{name}" for name in found)],
    package_dir={"fleetrank": PUBLIC, **{f"fleetrank.{name}": name for name in FOLDERS}},
)

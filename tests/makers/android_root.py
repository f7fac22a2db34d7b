"""Builds the root of emulated phones: bionic, Google's `benchmark_model` and our `ort_runner`.

`make android-root` calls it. Nothing that it fetches is part of the project; each file is checked.
"""

import hashlib
import subprocess
import sys
import tarfile
from pathlib import Path

_BIONIC_8, _BIONIC_6 = "arm64_android/system", "arm64_android6.0/system"
_ANDROID_8 = {
    "bin/linker64": "67cc9a74ef63401ecaea2a527cb2207187c7386676f680ad7590c9f8115a6227",
    "lib64/libc.so": "4e6d025f3356a3353418981e475561cfa133a0e439a20c9d9bede715ae167697",
    "lib64/libdl.so": "e52d3d9b4267e37987f157d4996a3f5d1ca007dab0f217f959921e3d1c5cfe13",
}
_ANDROID_6 = {
    "bin/linker": "469d46bef1a3b4acdfa42501823a0682d91bc02b2c124c4702562ee37fcad7bb",
    "lib64/libm.so": "a8a2356b14dcf3121a684a11d5eb67d42e2a1be0e8104f9ca6d81ef21a2fa028",
    "lib64/liblog.so": "85afe56be071e747d6000c41a390212357dece6ee8659be7bc6eae0340f9ada0",
    "lib64/libc++.so": "0d1f8733169087ea1b8a406f85cdce0a41bb936b2fadb44bb2bf85db6825d6d7",
    "lib/libEGL.so": "2b3487c0b028f08f7f1bd91fcd039ece5b03afa6b8736916e11461f60aedcfc3",
    "lib/libGLESv2.so": "5cf7ee91d253b13a0ba9c737f0eb2786ca34843d7be2c67b71f14d351267d658",
    "lib/libm.so": "0c1c266e858ba674388f01b75bfddc460e1fe663533f64c657389395e1255d64",
    "lib/libcutils.so": "699559b8f266672f1a8e9e41cb1c5a14bcd49d4259c51f925fe7682bc0783548",
    "lib/libutils.so": "1ab7ede98936ef32a1a3388c7cdbb47e587edd721ccdd6f55cd47a5890a8626b",
    "lib/liblog.so": "64179d8fe32ad201095622cc7453bdfcc2de1213137af17c83bb27678a1074c4",
    "lib/libGLES_trace.so": "750fdc1f150374b90592c769c756adf9d93819026e1f3c5b774191aefbcb18d6",
    "lib/libdl.so": "5d928ca729836ad4544c0870609f482e7ca229c01facec8f4ebebfef151f2c92",
    "lib/libc++.so": "e27bbf74ea463fe22e9eb84593eeff0a63a3e32a95d6e06e15fdfa23b1693851",
    "lib/libc.so": "3b5b1d3000ace45c42ec9b2f086af5c865383e35423b50725e7f390a927ec01c",
    "lib/libbacktrace.so": "8811e7724cf1c124d17ffb26202b4bc9606b206e5156b8485cab718e8a3ce35f",
    "lib/libprotobuf-cpp-lite.so":
        "01c8f432f9b08e87a30fed560ad7ced52b70463b6da10c4a3e849af8f9cec1ca",
    "lib/libbase.so": "277da02683c9a1b49a9c924b956f74e5ac731347c4a5de88230f10bbb2cf214e",
    "lib/libunwind.so": "9d7c8dd9a5bfe286d6097a2003314a97117eb6809085d29346f56102cfd7a8cc",
    "usr/share/zoneinfo/tzdata": "c1019f82d8f6b8e9ac0e908c60d75593553286e94bdf60c617487f654e041485",
}  # fmt: skip
_BENCHMARK_MODEL = "b930b930db0b6ebb59aeec07a63fa52c83fd92cca6ffcb8a74989738808c8aa1"
_PACKAGE = "com.github.asus4.onnxruntime@0.4.9"
_AAR = "98cddbac92640b4a6af72a03c42e0491851f366d3da66bbaeb5dd66310946cf2"
"""ONNX Runtime 1.29.0 for Android, inside of the package of npm."""


def build(root: Path, rootfs: str, scripts: str) -> None:
    """Fetches, checks and places all files; the make targets then build what is ours.

    Args:
        root: folder to fill.
        rootfs: a clone of qilingframework/rootfs.
        scripts: a clone of saideeptiku/TermuxScripts.
    """
    for folder, files in ((_BIONIC_8, _ANDROID_8), (_BIONIC_6, _ANDROID_6)):
        for name, sha256 in files.items():
            _place(root / "system" / name, _shown(rootfs, f"{folder}/{name}"), sha256)
    gles = root / "system/lib/libGLESv2.so"
    _place(gles.with_name("libGLESv3.so"), gles.read_bytes(), _ANDROID_6["lib/libGLESv2.so"])
    tool = _shown(scripts, "tflite/benchmark_model")
    _place(root / "tools/benchmark_model", tool, _BENCHMARK_MODEL)
    aar = root / "onnxruntime.aar"
    if not aar.is_file():
        _place(aar, _packed_aar(root), _AAR)


def _shown(clone: str, path: str) -> bytes:
    return subprocess.run(
        ["git", "-C", clone, "show", f"HEAD:{path}"], check=True, stdout=subprocess.PIPE
    ).stdout


def _packed_aar(folder: Path) -> bytes:
    packing = ["npm", "pack", "--silent", _PACKAGE]
    name = subprocess.run(packing, check=True, cwd=folder, stdout=subprocess.PIPE, text=True).stdout
    package = folder / name.strip()
    with tarfile.open(package) as packed:
        aar = packed.extractfile("package/Plugins/Android/onnxruntime.aar")
        content = b"" if aar is None else aar.read()
    package.unlink()
    return content


def _place(path: Path, content: bytes, sha256: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        sys.exit(f"{path} would have the sha256 {found}, not {sha256}: another version was fetched")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)


if __name__ == "__main__":
    build(Path(sys.argv[1]), *sys.argv[2:4])

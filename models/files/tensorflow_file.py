"""Keras models and SavedModels to TFLite, by TensorFlow's own converter."""

from pathlib import Path

from fleetrank.models.errors import ExportError


def convert_to_tflite(source: Path, path: Path) -> None:
    """Converts a trusted `.keras` or `.h5` file or SavedModel folder.

    Raises:
        ExportError: TensorFlow cannot read or convert it.
    """
    import tensorflow as tf

    try:
        if source.is_dir():
            converter = tf.lite.TFLiteConverter.from_saved_model(str(source))
        else:
            # Trusted by now: a model with a Lambda layer is allowed to be one.
            network = tf.keras.models.load_model(source, compile=False, safe_mode=False)
            converter = tf.lite.TFLiteConverter.from_keras_model(network)
        data = converter.convert()
    except Exception as error:  # Keras and TensorFlow raise everything from KeyError to their own
        raise ExportError(
            f"TensorFlow cannot convert {source}: {type(error).__name__}: {error}",
            "convert it to TFLite yourself and give that file",
        ) from error
    path.write_bytes(data)

"""Formats of bytes that several packages read. Open `protobuf`, or `checksum` for damaged bytes."""

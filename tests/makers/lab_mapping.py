"""The mapping of a laboratory's table `net,phone,ms`, for `results import --from csv`."""

LAB_MAPPING = """
[source]
name = "lab"
licence = "ours"
sample_kind = "tool_summary"
[columns]
model = "net"
device = "phone"
latency = "ms"
[units]
latency = "ms"
[constants]
tier = "edge"
runtime = "tflite"
precision = "fp32"
batch = 1
[models]
r18 = "resnet18"
"""

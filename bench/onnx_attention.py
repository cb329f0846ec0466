"""Attention by ONNX Runtime, for benchmarks: one-node models, built without the onnx package."""

import sys

import numpy as np
import onnxruntime


def _field(number, value):
    """One protobuf field: an int as varint, bytes and str with their length."""

    def varint(x):
        parts = bytearray()
        while x > 127:
            parts.append(x & 127 | 128)
            x >>= 7
        return bytes(parts + bytearray([x]))

    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def _model(op, domain, attributes, shapes):
    """Bytes of an ONNX model of one node; field numbers as in onnx.proto.

    shapes: {name: dims} of the float32 inputs and, last, of the output.
    """

    def value_info(name, dims):
        dimensions = b"".join(_field(1, _field(1, d)) for d in dims)
        tensor_type = _field(1, 1) + _field(2, dimensions)  # element type 1: float32
        return _field(1, name) + _field(2, _field(1, tensor_type))

    *names, output = shapes
    node = b"".join(_field(1, name) for name in names) + _field(2, output) + _field(4, op)
    for name, value in attributes.items():
        node += _field(5, _field(1, name) + _field(3, value) + _field(20, 2))  # type 2: int
    node += _field(7, domain)
    graph = _field(1, node) + _field(2, "attention")
    graph += b"".join(_field(11, value_info(name, shapes[name])) for name in names)
    graph += _field(12, value_info(output, shapes[output]))
    opsets = _field(8, _field(1, "") + _field(2, 23))
    opsets += _field(8, _field(1, "com.microsoft") + _field(2, 1))
    return _field(1, 10) + _field(7, graph) + opsets


def runs(inputs, causal, threads):
    """{operator: (run, outputs)} for the operators that this release of ONNX Runtime has.

    inputs: q, k, v, float32 [1, heads, seqlen, head_dim]. After run(), outputs() is [o], alike.
    """
    _, h, n, d = inputs[0].shape
    heads_first, tokens_first = (1, h, n, d), (1, n, h * d)
    names = ("q", "k", "v")
    standard = {"is_causal": int(causal)}
    contributed = {"num_heads": h, "unidirectional": int(causal)}
    models = {
        "Attention": ("", standard, heads_first),
        "MultiHeadAttention": ("com.microsoft", contributed, tokens_first),
    }
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    found = {}
    for name, (domain, attributes, shape) in models.items():
        model = _model(name, domain, attributes, dict.fromkeys((*names, "o"), shape))
        try:
            session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        except Exception as error:  # its classes are not public; most likely a missing operator
            print(f"onnxruntime {name}: {str(error)[:120]}", file=sys.stderr)
            continue
        binding = session.io_binding()
        for key, x in zip(names, inputs):
            if shape is tokens_first:
                x = x.transpose(0, 2, 1, 3).reshape(shape)
            binding.bind_ortvalue_input(
                key, onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(x))
            )
        result = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
        binding.bind_ortvalue_output("o", result)

        def outputs(result=result, shape=shape):
            o = result.numpy()
            return [o if shape is heads_first else o.reshape(1, n, h, d).transpose(0, 2, 1, 3)]

        found[name] = (lambda s=session, b=binding: s.run_with_iobinding(b), outputs)
    return found

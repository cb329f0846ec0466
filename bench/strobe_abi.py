"""libstrobe through ctypes, for benchmarks: what a plain forward or backward needs of strobe.h.

The mirrors below must be in step with include/strobe/strobe.h; Library checks their sizes against
what the library writes.
"""

import ctypes
import pathlib
from ctypes import (
    c_char,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)

FORWARD, BACKWARD = 0, 1
DTYPES = {"f32": 1, "bf16": 2, "f16": 3}
BSHD, BHSD = 0, 1
DEVICES = {"cpu": 0, "cuda": 1, "emulator": 2}


class Status(ctypes.Structure):
    _fields_ = [("code", c_int32), ("argument", c_char * 60), ("message", c_char * 1984)]


class Strides(ctypes.Structure):
    _fields_ = [(name, c_int64) for name in ("batch", "seq", "head")]


class ScoreTensor(ctypes.Structure):
    _fields_ = [("dtype", c_int32), ("reserved", c_int32)] + [
        (name, c_int64)
        for name in (
            "batch",
            "heads",
            "seqlen_q",
            "seqlen_k",
            "stride_batch",
            "stride_head",
            "stride_q",
        )
    ]


class Problem(ctypes.Structure):
    _fields_ = (
        [("struct_size", c_uint32)]
        + [(name, c_int32) for name in ("op", "dtype", "layout")]
        + [
            (name, c_int64)
            for name in (
                "batch",
                "heads",
                "kv_heads",
                "seqlen_q",
                "seqlen_k",
                "head_dim",
                "head_dim_v",
            )
        ]
        + [
            ("lengths", c_int32),
            ("deterministic", c_int32),
            ("total_q", c_int64),
            ("total_k", c_int64),
        ]
        + [("scale", c_double), ("softcap", c_double)]
        + [(name, c_int64) for name in ("window_left", "window_right", "query_offset")]
        + [("alibi", c_int32), ("sinks", c_int32), ("bias", ScoreTensor), ("mask", ScoreTensor)]
        + [("dropout_p", c_double)]
        + [(f"{name}_strides", Strides) for name in "q k v o lse dout dlse dq dk dv".split()]
        + [(name, c_int32) for name in ("alignment_bytes", "partials", "partial_dtype", "reserved")]
        + [("num_rows", c_int64)]
    )


class PlanOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("device", c_int32),
        ("device_index", c_int32),
        ("threads", c_int32),
        ("kernel", c_char_p),
        ("overrides", c_char_p),
        ("executor", c_void_p),
    ]


class RunArgs(ctypes.Structure):
    _fields_ = (
        [("struct_size", c_uint32), ("reserved", c_uint32)]
        + [
            (name, c_void_p)
            for name in (
                "q k v o lse dout dlse dq dk dv dbias dsinks bias mask alibi_slopes sinks "
                "cu_seqlens_q cu_seqlens_k seqlens_q seqlens_k"
            ).split()
        ]
        + [("dropout_seed", c_uint64), ("dropout_offset", c_uint64)]
        + [
            (name, c_void_p)
            for name in "dropout_state partial_o partial_lse rows probs keep_mask workspace".split()
        ]
        + [("workspace_bytes", c_size_t)]
    )


class StrobeError(Exception):
    pass


class Library:
    def __init__(self, path):
        path = pathlib.Path(path).resolve()
        for beside in path.parent.glob("libhwy.so*"):  # carried along to a machine that lacks it
            ctypes.CDLL(str(beside), mode=ctypes.RTLD_GLOBAL)
        self.c = ctypes.CDLL(str(path))
        self.c.strobe_version.restype = c_char_p
        self.c.strobe_plan_create.argtypes = [c_void_p] * 4
        self.c.strobe_plan_run.argtypes = [c_void_p] * 4
        self.c.strobe_plan_destroy.argtypes = [c_void_p]
        self.c.strobe_plan_destroy.restype = None
        self.c.strobe_plan_workspace_bytes.argtypes = [c_void_p]
        self.c.strobe_plan_workspace_bytes.restype = c_size_t
        self.c.strobe_plan_explain.argtypes = [c_void_p, c_int32, c_void_p, c_size_t]
        self.c.strobe_plan_explain.restype = c_size_t

    def defaults(self, struct, function):
        """A struct with its defaults, once the library agrees about its size."""
        memory = ctypes.create_string_buffer(16384)  # a larger struct of the library fits, too
        function(memory)
        value = struct.from_buffer(memory)
        if value.struct_size != ctypes.sizeof(struct):
            raise StrobeError(
                f"{struct.__name__} takes {value.struct_size} bytes in the library and "
                f"{ctypes.sizeof(struct)} in bench/strobe_abi.py: bring it in step with strobe.h"
            )
        return value

    def problem(self, **fields):
        problem = self.defaults(Problem, self.c.strobe_problem_init)
        for name, value in fields.items():
            setattr(problem, name, value)
        return problem


def address_of(array):
    """Of a torch tensor or a numpy array."""
    return array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data


class Plan:
    """A plan with its workspace: not for two threads, nor two streams, at once.

    allocate(bytes) gives the workspace as a tensor or array in the memory of the device.
    """

    def __init__(
        self, library, problem, threads=0, kernel=None, overrides=None, device="cpu", allocate=None
    ):
        self.library, self.c = library, library.c
        options = library.defaults(PlanOptions, self.c.strobe_plan_options_init)
        options.device = DEVICES[device]
        options.threads = threads
        options.kernel = kernel.encode() if kernel else None
        options.overrides = overrides.encode() if overrides else None
        self.handle, status = c_void_p(), Status()
        self.c.strobe_plan_create(
            *(ctypes.byref(x) for x in (problem, options, self.handle, status))
        )
        if status.code:
            raise StrobeError(status.message.decode())
        self.workspace_bytes = self.c.strobe_plan_workspace_bytes(self.handle)
        if allocate:
            self.memory = allocate(self.workspace_bytes + 256)
            start = address_of(self.memory)
        else:
            self.memory = ctypes.create_string_buffer(self.workspace_bytes + 256)
            start = ctypes.addressof(self.memory)
        self.workspace = (start + 255) // 256 * 256

    def __del__(self):
        self.c.strobe_plan_destroy(self.handle)

    def explain(self):
        size = self.c.strobe_plan_explain(self.handle, 0, None, 0)
        text = ctypes.create_string_buffer(size)
        self.c.strobe_plan_explain(self.handle, 0, text, size)
        return text.value.decode()

    def bind(self, stream=None, **arrays):
        """A function that runs the plan on these arrays or tensors, with nothing left to prepare.

        On a GPU it enqueues on `stream`, a CUstream as an integer; None or 0: the default stream.
        """
        args = self.library.defaults(RunArgs, self.c.strobe_run_args_init)
        for name, array in arrays.items():
            setattr(args, name, address_of(array))
        args.workspace = self.workspace
        args.workspace_bytes = self.workspace_bytes
        status = Status()
        run, handle = self.c.strobe_plan_run, self.handle
        args_pointer, status_pointer = ctypes.byref(args), ctypes.byref(status)

        def call(keep=(self, arrays)):  # plan and arrays live as long as the function
            if run(handle, args_pointer, stream, status_pointer):
                raise StrobeError(status.message.decode())

        return call

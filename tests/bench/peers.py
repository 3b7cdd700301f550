"""attnd beside PyTorch and ONNX Runtime, in one run on one machine.

    peers.py DAEMON [THREADS]

The others are called in this process, on tensors that are there; attnd is asked
over HTTP, by safetensors, and says in Server-Timing how long it computed. So
"attnd" is the computation alone, as with them, and "request" is all that a
client waits for. Then whole requests in JSON: attnd over HTTP, and what a handler in
Python would do without any HTTP: orjson, torch, orjson. The figures are medians, in milliseconds; the last three columns are
errors against torch in float64, relative Frobenius.
"""

import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import onnx
import onnxruntime
import orjson
import safetensors.numpy
import torch
from onnx import TensorProto, helper

TURNS = 5
ATTENTIONS = [(12, 128, 128, 64, False), (12, 512, 512, 64, False),
              (12, 512, 512, 64, True), (16, 1024, 1024, 64, False),
              (16, 1024, 1024, 64, True), (8, 4096, 4096, 64, False),
              (8, 4096, 4096, 64, True), (32, 1, 4096, 128, False)]
LAYERS = [(1, 16, 64, 4), (1, 128, 768, 12), (1, 512, 768, 12), (8, 128, 768, 12)]


class Attnd:
    """A daemon of so many workers that holds `modules` as models."""

    def __init__(self, daemon, threads, modules):
        self.folder = tempfile.TemporaryDirectory()
        for name, module in modules.items():
            tensors = {k: v.numpy() for k, v in module.state_dict().items()}
            safetensors.numpy.save_file(tensors, f"{self.folder.name}/{name}.safetensors")
        self.process = subprocess.Popen(
            [daemon, "--listen", "127.0.0.1:0", "--workers", str(threads), "--models",
             self.folder.name, "--max-body-bytes", str(1 << 28)], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "ready" in line:
                break
        port = re.search(r"127\.0\.0\.1:(\d+)", line)[1]
        self.connection = http.client.HTTPConnection("127.0.0.1", int(port))

    def request(self, tensors, options):
        body = safetensors.numpy.save(tensors, {k: json.dumps(v) for k, v in options.items()})
        return self.ask(body, "application/vnd.safetensors")

    def ask(self, body, kind):
        def ask():
            self.connection.request("POST", "/attention", body,
                                    {"Content-Type": kind, "Accept": kind})
            answer = self.connection.getresponse()
            content = answer.read()
            if answer.status != 200:
                raise RuntimeError(content)
            ask.computed = float(re.search(r"compute;dur=([\d.]+)",
                                           answer.headers["Server-Timing"])[1])
            return content
        return ask

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def session(nodes, inputs, weights, threads):
    """An ONNX Runtime session of `nodes`, from rank 3 inputs to "output"."""
    def value(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 3)
    graph = helper.make_graph(
        nodes, "g", [value(name) for name in inputs], [value("output")],
        [onnx.numpy_helper.from_array(w, name) for name, w in weights.items()])
    model = helper.make_model(graph, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = 8
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model.SerializeToString(), options,
                                        providers=["CPUExecutionProvider"])


def multi_head(H, causal):
    return helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["context"],
                            domain="com.microsoft", num_heads=H, unidirectional=int(causal))


def attention_calls(attnd, threads, H, L, S, D, causal):
    q, k, v = (torch.randn(1, H, n, D) for n in (L, S, S))
    merged = {name: x.transpose(1, 2).reshape(1, -1, H * D).numpy()
              for name, x in zip("qkv", (q, k, v))}
    node = multi_head(H, causal)
    node.output[0] = "output"
    run = session([node], "qkv", {}, threads).run
    sdpa = torch.nn.functional.scaled_dot_product_attention
    calls = {
        "attnd": attnd.request({"query": q.numpy(), "key": k.numpy(), "value": v.numpy()},
                               {"need_weights": False, "is_causal": causal}),
        "torch": lambda: sdpa(q, k, v, is_causal=causal),
        "ort": lambda: run(None, merged)[0],
    }
    want = sdpa(q.double(), k.double(), v.double(), is_causal=causal)
    return calls, want, lambda x: x.reshape(1, L, H, D).transpose(0, 2, 1, 3)


def layer_calls(attnd, threads, name, module, x, H):
    E = x.shape[2]
    w, b = module.in_proj_weight.numpy(), module.in_proj_bias.numpy()
    weights = {"wo": module.out_proj.weight.numpy().T, "bo": module.out_proj.bias.numpy()}
    nodes = []
    for i, letter in enumerate("qkv"):
        weights["w" + letter] = w[i * E:(i + 1) * E].T
        weights["b" + letter] = b[i * E:(i + 1) * E]
        nodes += [helper.make_node("MatMul", ["x", "w" + letter], ["x" + letter]),
                  helper.make_node("Add", ["x" + letter, "b" + letter], [letter])]
    nodes += [multi_head(H, False), helper.make_node("MatMul", ["context", "wo"], ["xo"]),
              helper.make_node("Add", ["xo", "bo"], ["output"])]
    run = session(nodes, ["x"], {k: numpy.ascontiguousarray(a) for k, a in weights.items()},
                  threads).run
    calls = {
        "attnd": attnd.request({"query": x.numpy()},
                               {"model": name, "num_heads": H, "need_weights": False}),
        "torch": lambda: module(x, x, x, need_weights=False)[0],
        "ort": lambda: run(None, {"x": x.numpy()})[0],
    }
    wide = torch.nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64).eval()
    wide.load_state_dict({k: t.double() for k, t in module.state_dict().items()})
    wide_x = x.double()
    return calls, wide(wide_x, wide_x, wide_x, need_weights=False)[0], lambda y: y


def measure(calls):
    """Medians of each call; attnd's computation beside it. They take turns of a
    third of a second, each after a rest in which threads of the one before, which
    spin for some milliseconds, go to sleep."""
    times = {name: [] for name in [*calls, "computed"]}
    for name, call in [*calls.items()] * TURNS:
        time.sleep(0.05)
        call()
        end = time.perf_counter() + 0.33
        while time.perf_counter() < end:
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) * 1e3)
            if name == "attnd":
                times["computed"].append(call.computed)
    return {name: statistics.median(values) for name, values in times.items()}


def error(got, want):
    want = want.numpy()
    return numpy.linalg.norm(numpy.asarray(got, numpy.float64) - want) / numpy.linalg.norm(want)


def report_json(attnd, module, name, x, H):
    """The layer once more, from the text of a request to that of its answer."""
    body = orjson.dumps({"query": x.tolist(), "model": name, "num_heads": H,
                         "need_weights": False})

    def handle():
        rows = torch.tensor(orjson.loads(body)["query"])
        return orjson.dumps({"output": module(rows, rows, rows, need_weights=False)[0].tolist()})

    ms = measure({"attnd": attnd.ask(body, "application/json"), "torch": handle})
    label = "layer N{} L{} E{} JSON".format(*x.shape)
    print(f"{label:24} {'':8} {ms['attnd']:8.3f} {ms['torch']:8.3f} {ms['torch'] / ms['attnd']:5.2f}",
          flush=True)


def report(label, calls, want, ort_shape):
    ms = measure(calls)
    own = safetensors.numpy.load(calls["attnd"]())["output"].reshape(want.shape)
    errors = [error(x, want) for x in (own, calls["torch"](), ort_shape(calls["ort"]()))]
    print(f"{label:24} {ms['computed']:8.3f} {ms['attnd']:8.3f}"
          f" {ms['torch']:8.3f} {ms['torch'] / ms['computed']:5.2f}"
          f" {ms['ort']:8.3f} {ms['ort'] / ms['computed']:5.2f}   "
          + " ".join(f"{e:.1e}" for e in errors), flush=True)


def main():
    daemon, threads = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    modules = {f"layer{i}": torch.nn.MultiheadAttention(E, H, batch_first=True).eval()
               for i, (_, _, E, H) in enumerate(LAYERS)}
    attnd = Attnd(daemon, threads, modules)
    print(f"torch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), ONNX Runtime "
          f"{onnxruntime.__version__}; threads: {threads}; ms\n{'':24} {'attnd':>8} {'request':>8}"
          f" {'torch':>8} {'ratio':>5} {'ORT':>8} {'ratio':>5}   errors of the three")
    try:
        with torch.inference_mode():
            for H, L, S, D, causal in ATTENTIONS:
                report(f"{H} x {L} x {S} x {D}{' causal' * causal}",
                       *attention_calls(attnd, threads, H, L, S, D, causal))
            for i, (N, L, E, H) in enumerate(LAYERS):
                report(f"layer N{N} L{L} E{E}",
                       *layer_calls(attnd, threads, f"layer{i}", modules[f"layer{i}"],
                                    torch.randn(N, L, E), H))
            for i, (N, L, E, H) in enumerate(LAYERS):
                report_json(attnd, modules[f"layer{i}"], f"layer{i}", torch.randn(N, L, E), H)
    finally:
        attnd.close()


main()

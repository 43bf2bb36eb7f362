"""Compares the shapes that steeve works out for ONNX models with those that ONNX Runtime really produces.

    python onnx_shapes.py ONNX_SHAPES [--folder DIR] [MODEL [NAME=SIZE ...]]...

ONNX_SHAPES is the example of that name of steeve-models. Every value of a model becomes an output, ONNX Runtime runs it without
optimisations on inputs of the sizes that are given, and each type and shape is compared. The example also plans the model and
replays the plan. A line for each model:

    MODEL SIZES: VALUES values, PEAK bytes, WEIGHTS bytes of weights
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

NAMES = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16,
    "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64, "bool": np.bool_, "string": np.object_,
}


def ours(program, path, dims):
    """Returns what steeve says: layouts by name, and the line of the plan."""
    sizes = [f"{name}={size}" for name, size in dims.items()]
    run = subprocess.run([program, str(path), *sizes], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise ValueError(run.stderr.strip())
    layouts = dict(reversed(line.split("\t", 1)) for line in run.stdout.splitlines())
    return layouts, run.stderr.strip().splitlines()[-1]


def layout(array):
    """Returns type and shape of an array as steeve writes them."""
    if isinstance(array, list):
        return f"list of {len(array)} tensors"
    kind = next((name for name, kind in NAMES.items() if array.dtype == kind), "string")
    return f"{kind}[{','.join(map(str, array.shape))}]"


def fill(info, dims, layouts, given):
    """Returns contents of an input: small numbers, since many inputs are indices, lengths or flags."""
    if info.name in given:
        return given[info.name]
    kind, shape = layouts[info.name].rstrip("]").split("[")
    shape = [int(it) for it in shape.split(",") if it]
    kind = NAMES[kind]
    if kind == np.object_:
        return np.full(shape, "a", dtype=object)
    if np.issubdtype(kind, np.floating):
        return np.random.default_rng(7).random(shape).astype(kind)
    return np.ones(shape, dtype=kind)


def theirs(path, layouts, dims, given):
    """Returns what ONNX Runtime produces: layouts by name."""
    model = onnx.load(str(path))
    known = {output.name for output in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name]
    for name in names:
        if name not in known:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
            known.add(name)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    data = model.SerializeToString()
    folder = Path(path).parent
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    feeds = {info.name: fill(info, dims, layouts, given) for info in session.get_inputs()}
    outputs = [output.name for output in session.get_outputs()]
    return dict(zip(outputs, map(layout, session.run(outputs, feeds))))


def check(program, path, dims, given=None):
    """Compares a model. Returns what is wrong."""
    layouts, plan = ours(program, path, dims)
    real = theirs(path, layouts, dims, given or {})
    wrong = [f"{name}: {layouts.get(name)}, really {kind}" for name, kind in real.items() if layouts.get(name) != kind]
    return len(real), plan, wrong

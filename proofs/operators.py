"""python operators.py FOLDER: operators compute the same where operand and result overlap as far as `random_operators` says.

Runs each model of the folder with and without its plan in the unmodified interpreter of the package tflite-micro on three random
inputs and compares the outputs bit for bit; then with operand and result 16 bytes nearer, which has to change outputs in
many of them. Prints "MODELS, plans that are nearer, those that change outputs"; what differs is an error. Models
that the runtime does not support are left out.
"""

import glob
import os
import sys

import numpy as np
from tflite_micro import runtime
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema


def operator(model):
    root = schema.Model.GetRootAsModel(model, 0)
    code = root.OperatorCodes(0).BuiltinCode()
    return next(name for name, number in vars(schema.BuiltinOperator).items() if number == code)


def outputs(file):
    with open(file, "rb") as content:
        model = content.read()
    interpreter = runtime.Interpreter.from_bytes(model, arena_size=1 << 20)
    details = interpreter.get_input_details(0)
    found = []
    for seed in range(3):
        generator = np.random.default_rng(seed)
        if details["dtype"] == np.float32:
            values = generator.uniform(0.01, 2, details["shape"]).astype(np.float32)
        else:
            values = generator.integers(-100, 100, details["shape"]).astype(details["dtype"])
        interpreter.set_input(values, 0)
        interpreter.invoke()
        found.append(interpreter.get_output(0).tobytes())
    return found, operator(model)


def main():
    ran, nearer, changed, kinds = 0, 0, 0, {}
    for file in sorted(glob.glob(os.path.join(sys.argv[1], "*.tflite"))):
        try:
            expected, kind = outputs(file)
        except (RuntimeError, ValueError):
            continue
        ran += 1
        kinds[kind] = kinds.get(kind, 0) + 1
        if outputs(file.replace(".tflite", ".planned"))[0] != expected:
            sys.exit(f"error: {file}: {kind}: the outputs differ")
        wrong = file.replace(".tflite", ".wrong")
        if os.path.exists(wrong):
            nearer += 1
            changed += outputs(wrong)[0] != expected
    print(ran, nearer, changed)
    print(", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())))


main()
